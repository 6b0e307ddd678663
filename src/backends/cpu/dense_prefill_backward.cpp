// Backward of dense prefill in two passes, so that no thread adds to another's result: row tiles give dq, key tiles
// give dk and dv, and each pass computes the softmax weights again from the LSE.
#include "backends/cpu/dense_prefill_backward.hpp"

#include <algorithm>

#include "backends/cpu/config.hpp"
#include "backends/cpu/prefill_threads.hpp"
#include "backends/cpu/row_tile.hpp"
#include "backends/cpu/select_kernels.hpp"
#include "core/causal.hpp"
#include "core/planted_fault.hpp"

namespace flashmla::backends::cpu {
namespace {

// Multiply-adds that a pair costs in both passes, in d_qk and in d_v: scores, dout . v, dq; scores, dout . v, dk, dv.
constexpr int kProductsQk = 4;
constexpr int kProductsV = 3;

// One thread's buffers.
struct Buffers {
    static std::int64_t floats(const PrefillShape& shape) {
        return kKeyBufferFloats + kScratchFloats + 2 * kRowTile * (shape.d_qk + shape.d_v);
    }
    Buffers(const PrefillShape& shape, void* workspace, int thread)
        : streamed(static_cast<float*>(workspace) + thread * floats(shape)),
          scratch(streamed + kKeyBufferFloats),
          resident_qk(scratch + kScratchFloats),
          resident_v(resident_qk + kRowTile * shape.d_qk),
          gradient_qk(resident_v + kRowTile * shape.d_v),
          gradient_v(gradient_qk + kRowTile * shape.d_qk) {}
    float* streamed;
    float* scratch;
    float* resident_qk;
    float* resident_v;
    float* gradient_qk;
    float* gradient_v;
};

// Rows of both widths and what the softmax needs of queries.
struct Rows {
    const std::uint16_t* qk[kRowTile];
    const std::uint16_t* v[kRowTile];
    float lse[kRowTile];
    float delta[kRowTile];  // dout . out - dlse
    int limits[kRowTile];
};

class BackwardWorker {
public:
    BackwardWorker(const core::DensePrefillBackwardCall& call, const TileKernels& kernels, const Buffers& buffers)
        : call_(call), kernels_(kernels), buffers_(buffers) {
        const PrefillShape& shape = call.forward.plan->shape;
        d_qk_ = static_cast<int>(shape.d_qk);
        d_v_ = static_cast<int>(shape.d_v);
        shape_qk_ = {.d_qk = d_qk_, .d_v = d_qk_, .dtype = shape.dtype};
        shape_v_ = {.d_qk = d_v_, .d_v = d_v_, .dtype = shape.dtype};
        shape_pair_ = {.d_qk = d_qk_, .d_v = d_v_, .dtype = shape.dtype, .value_offset = d_qk_};
    }

    // A row tile against its keys: dq.
    void run_queries(const RowTile& task) {
        const core::DensePrefillCall& forward = call_.forward;
        const core::RowTiling& tiling = task.tiling;
        const int rows = tiling.rows(task.tile);
        const int first_head = task.kv_head * tiling.heads + tiling.first_head(task.tile);
        const int heads = core::min_of(tiling.tile_heads, tiling.heads - tiling.first_head(task.tile));
        std::uint16_t* dq[kRowTile];
        int visible[kRowTile];
        int keys = 0;
        for (int r = 0; r < kRowTile; ++r) {
            // Rows that only fill up a vector see what the last row sees, so that they never cause masking.
            const int row = std::min(r, rows - 1);
            const int token = tiling.first_token(task.tile) + row / heads;
            read_query(resident_, r, task.request, token, first_head + row % heads);
            visible[r] = visible_keys(task.request, token);
            keys = std::max(keys, visible[r]);
            dq[r] = call_.dq.at(forward.cu_seqlens_q[task.request] + token, first_head + row % heads);
        }
        pack_resident(rows);
        for (int first = 0; first < keys; first += kKeyTile) {
            const int count = std::min(kKeyTile, keys - first);
            for (int k = 0; k < count; ++k) read_key(streamed_, k, task.request, first + k, task.kv_head);
            for (int r = 0; r < kRowTile; ++r) resident_.limits[r] = visible[r] - first;
            add(rows, count, resident_, false);
        }
        store(shape_qk_, rows, buffers_.gradient_qk, forward.softmax_scale, dq);
    }

    // A key tile against the queries that see it: dk and dv.
    void run_keys(const RowTile& task) {
        const core::DensePrefillCall& forward = call_.forward;
        const int rows = task.tiling.rows(task.tile);
        const int first_key = task.tiling.first_token(task.tile);
        std::uint16_t* dk[kRowTile];
        std::uint16_t* dv[kRowTile];
        for (int r = 0; r < rows; ++r) {
            read_key(resident_, r, task.request, first_key + r, task.kv_head);
            const std::int64_t at = std::int64_t{forward.cu_seqlens_kv[task.request]} + first_key + r;
            dk[r] = call_.dk.at(at, task.kv_head);
            dv[r] = call_.dv.at(at, task.kv_head);
        }
        pack_resident(rows);
        const PrefillShape& shape = forward.plan->shape;
        const auto group = static_cast<int>(shape.h_q / shape.h_kv);
        const int tokens = forward.length_q(task.request);
        const int first_token =
            core::first_seeing_token(forward.length_kv(task.request), tokens, first_key, shape.causal);
        for (int head = task.kv_head * group; head < (task.kv_head + 1) * group; ++head) {
            for (int token = first_token; token < tokens; token += kKeyTile) {
                const int count = std::min(kKeyTile, tokens - token);
                for (int s = 0; s < count; ++s) {
                    read_query(streamed_, s, task.request, token + s, head);
                    streamed_.limits[s] = visible_keys(task.request, token + s) - first_key;
                }
                add(rows, count, streamed_, true);
            }
        }
        store(shape_qk_, rows, buffers_.gradient_qk, forward.softmax_scale, dk);
        store(shape_v_, rows, buffers_.gradient_v, 1, dv);
    }

private:
    int visible_keys(std::int64_t request, int token) const {
        const core::DensePrefillCall& forward = call_.forward;
        return core::visible_keys(forward.length_kv(request), forward.length_q(request), token,
                                  forward.plan->shape.causal);
    }

    void read_query(Rows& rows, int i, std::int64_t request, int token, int head) const {
        const core::DensePrefillCall& forward = call_.forward;
        const std::int64_t at = std::int64_t{forward.cu_seqlens_q[request]} + token;
        rows.qk[i] = forward.q.at(at, head);
        rows.v[i] = call_.dout.at(at, head);
        rows.lse[i] = *forward.lse.at(at, head);
        rows.delta[i] = kernels_.dot_rows(shape_v_.dtype, rows.v[i], forward.out.at(at, head), d_v_);
        if (core::planted(core::PlantedFault::kDeltaForgotten)) rows.delta[i] = 0;
        if (call_.dlse.data != nullptr) rows.delta[i] -= *call_.dlse.at(at, head);
    }

    void read_key(Rows& rows, int i, std::int64_t request, int key, int kv_head) const {
        const core::DensePrefillCall& forward = call_.forward;
        const std::int64_t at = std::int64_t{forward.cu_seqlens_kv[request]} + key;
        rows.qk[i] = forward.k.at(at, kv_head);
        rows.v[i] = forward.v.at(at, kv_head);
    }

    void pack_resident(int rows) {
        shape_qk_.rows = shape_v_.rows = rows;
        kernels_.pack_queries(shape_qk_, resident_.qk, buffers_.resident_qk);
        kernels_.pack_queries(shape_v_, resident_.v, buffers_.resident_v);
        std::fill_n(buffers_.gradient_qk, kRowTile * d_qk_, 0.0f);
        std::fill_n(buffers_.gradient_v, kRowTile * d_v_, 0.0f);
    }

    void add(int rows, int count, const Rows& queries, bool queries_streamed) {
        kernels_.load_pairs(shape_pair_, streamed_.qk, streamed_.v, count, buffers_.streamed);
        kernels_.add_gradients({.d_qk = d_qk_,
                                .d_v = d_v_,
                                .scale = call_.forward.softmax_scale,
                                .rows = rows,
                                .resident_qk = buffers_.resident_qk,
                                .resident_v = buffers_.resident_v,
                                .streamed = buffers_.streamed,
                                .count = count,
                                .queries_streamed = queries_streamed,
                                .lse = queries.lse,
                                .delta = queries.delta,
                                .limits = queries.limits,
                                .gradient_qk = buffers_.gradient_qk,
                                .gradient_v = queries_streamed ? buffers_.gradient_v : nullptr,
                                .scratch = buffers_.scratch});
    }

    // Through the kernel that normalises: its sums are 1.
    void store(const TileShape& shape, int rows, float* gradient, float factor, std::uint16_t* const* to) {
        float ones[kRowTile];
        float factors[kRowTile];
        int seen[kRowTile];
        std::fill_n(ones, kRowTile, 1.0f);
        std::fill_n(factors, kRowTile, factor);
        std::fill_n(seen, kRowTile, 1);
        TileShape tile = shape;
        tile.rows = rows;
        kernels_.store(tile, {.out = gradient, .max = nullptr, .sum = ones}, seen, factors, to);
    }

    const core::DensePrefillBackwardCall& call_;
    const TileKernels& kernels_;
    Buffers buffers_;
    int d_qk_ = 0, d_v_ = 0;
    TileShape shape_qk_, shape_v_, shape_pair_;
    Rows resident_, streamed_;
};

}  // namespace

std::size_t dense_prefill_backward_workspace_bytes(const PrefillShape& shape, int num_workers) {
    return sizeof(float) * static_cast<std::size_t>(num_workers * Buffers::floats(shape));
}

Status dense_prefill_backward(const core::DensePrefillBackwardCall& call) {
    const PrefillShape& shape = call.forward.plan->shape;
    const Result<const TileKernels*> kernels = select_kernels(DType::kFloat32);
    if (!kernels.ok()) return kernels.status();
    const auto kv_heads = static_cast<int>(shape.h_kv);
    const int group = static_cast<int>(shape.h_q / shape.h_kv);
    RowTileQueue key_tiles(shape.b, kv_heads);
    RowTileQueue query_tiles(shape.b, kv_heads);
    const int threads = prefill_threads(call.forward, kProductsQk * shape.d_qk + kProductsV * shape.d_v);
    run_on_threads(threads, [&](int thread) {
        BackwardWorker worker(call, *kernels.value(), Buffers(shape, call.forward.workspace, thread));
        RowTile task;
        const auto of_keys = [&](std::int64_t i) { return ragged_tiling(1, call.forward.length_kv(i), kRowTile); };
        while (key_tiles.take(task, of_keys)) worker.run_keys(task);
        const auto of_queries = [&](std::int64_t i) {
            return ragged_tiling(group, call.forward.length_q(i), kRowTile);
        };
        while (query_tiles.take(task, of_queries)) worker.run_queries(task);
    });
    return {};
}

}  // namespace flashmla::backends::cpu
