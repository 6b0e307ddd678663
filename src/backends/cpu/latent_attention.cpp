#include "backends/cpu/latent_attention.hpp"

#include "backends/cpu/parallel.hpp"
#include "backends/cpu/select_kernels.hpp"
#include "backends/cpu/worker.hpp"

namespace flashmla::backends::cpu {
namespace {

// Starting a thread costs about as much as this many multiply-adds; a call with less work a thread uses fewer.
constexpr std::int64_t kMacsPerThread = 1 << 22;

int thread_limit(int num_workers) { return core::min_of(core::max_of(num_workers, 1), kMaxThreads); }

// Threads worth starting, at most `limit`.
int useful_threads(const LatentCall& call, const core::RowTiling& tiling, int limit) {
    const DecodeShape& shape = call.shape;
    // Groups of rows with keys of their own: requests, or query tokens.
    const std::int64_t groups = call.sparse() ? shape.b * shape.s_q : shape.b;
    const std::int64_t tokens = call.sparse() ? 1 : shape.s_q;
    const std::int64_t units = (call.sparse() ? tiling.tiles_per_token : tiling.tiles) * shape.h_kv;
    const std::int64_t macs_per_key = shape.h_q * tokens * (shape.d_qk + shape.d_v);
    std::int64_t macs = 0;
    std::int64_t tasks = 0;
    for (std::int64_t i = 0; i < groups; ++i) {
        const std::int64_t keys =
            call.sparse() ? call.list_entries(static_cast<int>(i / shape.s_q), static_cast<int>(i % shape.s_q))
                          : task_length(call, static_cast<int>(i));
        macs += macs_per_key * (keys + 1);
        tasks += units * core::max_of<std::int64_t>(1, core::ceil_div<std::int64_t>(keys, kChunkTokens));
        if (tasks >= limit && macs / kMacsPerThread >= limit) return limit;
    }
    return static_cast<int>(core::max_of<std::int64_t>(1, core::min_of<std::int64_t>(tasks, macs / kMacsPerThread)));
}

Status run(const LatentCall& call) {
    const DecodeShape& shape = call.shape;
    const bool granular = shape.d_qk % kDepthGranule == 0 && shape.d_v % kDepthGranule == 0;
    if (!granular || shape.d_qk > kMaxDepth || shape.d_v > kMaxValueDepth) {
        return unsupported("(d_qk, d_v): got (" + std::to_string(shape.d_qk) + ", " + std::to_string(shape.d_v) +
                           "), wanted multiples of " + std::to_string(kDepthGranule) + " up to (" +
                           std::to_string(kMaxDepth) + ", " + std::to_string(kMaxValueDepth) + ")");
    }
    const Result<const TileKernels*> kernels = select_kernels(product_type(shape));
    if (!kernels.ok()) return kernels.status();
    run_threads(call, *kernels.value());
    return {};
}

}  // namespace

std::size_t latent_workspace_bytes(std::int64_t d_qk, std::int64_t d_v, int num_workers) {
    return Buffers(d_qk, d_v, thread_limit(num_workers), nullptr).total_bytes();
}

Status decode(const core::DecodeCall& call) { return run(latent_call(call)); }

Status sparse_prefill(const core::SparsePrefillCall& call) { return run(latent_call(call)); }

void run_threads(const LatentCall& call, const TileKernels& kernels) {
    const core::RowTiling tiling = latent_tiling(call.shape);
    if (tiling.tiles == 0) return;
    const int limit = thread_limit(call.num_workers);
    const Buffers buffers(call.shape.d_qk, call.shape.d_v, limit, call.workspace);
    WorkQueue queue(call, tiling, limit);
    run_on_threads(useful_threads(call, tiling, limit),
                   [&](int thread) { Worker(call, tiling, kernels, buffers, queue, thread).run(); });
}

}  // namespace flashmla::backends::cpu
