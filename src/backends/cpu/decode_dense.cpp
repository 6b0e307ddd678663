#include "backends/cpu/decode_dense.hpp"

#include <array>
#include <system_error>
#include <thread>

#include "backends/cpu/select_kernels.hpp"
#include "backends/cpu/worker.hpp"

namespace flashmla::backends::cpu {
namespace {

// Starting a thread costs about as much as this many multiply-adds; a call with less work a thread uses fewer.
constexpr std::int64_t kMacsPerThread = 1 << 22;

int thread_limit(int num_workers) { return core::min_of(core::max_of(num_workers, 1), kMaxThreads); }

// Threads worth starting, at most `limit`.
int useful_threads(const core::DecodeCall& call, const core::RowTiling& tiling, int limit) {
    const DecodeShape& shape = call.plan->shape;
    const std::int64_t macs_per_key = shape.h_q * shape.s_q * (shape.d_qk + shape.d_v);
    std::int64_t macs = 0;
    std::int64_t tasks = 0;
    for (int i = 0; i < shape.b; ++i) {
        const std::int64_t keys = task_length(call, i);
        macs += macs_per_key * (keys + 1);
        tasks +=
            tiling.tiles * shape.h_kv * core::max_of<std::int64_t>(1, core::ceil_div<std::int64_t>(keys, kChunkTokens));
        if (tasks >= limit && macs / kMacsPerThread >= limit) return limit;
    }
    return static_cast<int>(core::max_of<std::int64_t>(1, core::min_of<std::int64_t>(tasks, macs / kMacsPerThread)));
}

}  // namespace

std::size_t decode_dense_workspace_bytes(const DecodeShape& shape, int num_workers) {
    return Buffers(shape, thread_limit(num_workers), nullptr).total_bytes();
}

Status decode_dense(const core::DecodeCall& call) {
    const DecodeShape& shape = call.plan->shape;
    const bool granular = shape.d_qk % kDepthGranule == 0 && shape.d_v % kDepthGranule == 0;
    if (!granular || shape.d_qk > kMaxDepth || shape.d_v > kMaxValueDepth) {
        return unsupported("(d_qk, d_v): got (" + std::to_string(shape.d_qk) + ", " + std::to_string(shape.d_v) +
                           "), wanted multiples of " + std::to_string(kDepthGranule) + " up to (" +
                           std::to_string(kMaxDepth) + ", " + std::to_string(kMaxValueDepth) + ")");
    }
    const Result<const TileKernels*> kernels = select_kernels(shape.dtype);
    if (!kernels.ok()) return kernels.status();
    run_threads(call, *kernels.value());
    return {};
}

void run_threads(const core::DecodeCall& call, const TileKernels& kernels) {
    const DecodeShape& shape = call.plan->shape;
    const core::RowTiling tiling =
        core::make_row_tiling(static_cast<int>(shape.h_q / shape.h_kv), static_cast<int>(shape.s_q), kRowTile);
    const int limit = thread_limit(call.plan->num_workers);
    const Buffers buffers(shape, limit, call.workspace);
    WorkQueue queue(call, tiling, limit);
    const auto work = [&](int thread) { Worker(call, tiling, kernels, buffers, queue, thread).run(); };

    std::array<std::thread, kMaxThreads> helpers;
    const int threads = useful_threads(call, tiling, limit);
    try {
        for (int i = 1; i < threads; ++i) helpers[i] = std::thread(work, i);
    } catch (const std::system_error&) {
        // The system has no thread left: those that run share the work, and the bits are the same.
    }
    work(0);
    for (std::thread& helper : helpers) {
        if (helper.joinable()) helper.join();
    }
}

}  // namespace flashmla::backends::cpu
