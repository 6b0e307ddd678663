// Dense prefill: the tile kernels of decode over keys and values that lie apart, a whole row tile a task.
#include "backends/cpu/dense_prefill.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/config.hpp"
#include "backends/cpu/parallel.hpp"
#include "backends/cpu/prefill_threads.hpp"
#include "backends/cpu/row_tile.hpp"
#include "backends/cpu/select_kernels.hpp"
#include "backends/cpu/softmax_scale.hpp"
#include "core/causal.hpp"

namespace flashmla::backends::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One thread's buffers.
struct Buffers {
    static std::int64_t floats(const PrefillShape& shape) {
        return kKeyBufferFloats + kScratchFloats + kPrefillRowTile * (shape.d_qk + shape.d_v + 2);
    }
    Buffers(const PrefillShape& shape, void* workspace, int thread)
        : keys(static_cast<float*>(workspace) + thread * floats(shape)),
          scratch(keys + kKeyBufferFloats),
          queries(scratch + kScratchFloats),
          partial{.out = queries + kPrefillRowTile * shape.d_qk,
                  .max = queries + kPrefillRowTile * (shape.d_qk + shape.d_v),
                  .sum = queries + kPrefillRowTile * (shape.d_qk + shape.d_v + 1)} {}
    float* keys;
    float* scratch;
    float* queries;
    Partial partial;
};

class PrefillWorker {
public:
    PrefillWorker(const core::DensePrefillCall& call, const TileKernels& kernels, const Buffers& buffers)
        : call_(call), kernels_(kernels), buffers_(buffers) {}

    void run(const RowTile& task) {
        enter(task);
        kernels_.pack_queries(shape_, q_rows_, buffers_.queries);
        const Partial& partial = buffers_.partial;
        std::fill_n(partial.max, kPrefillRowTile, -kInfinity);
        std::fill_n(partial.sum, kPrefillRowTile, 0.0f);
        const int padded_rows = core::ceil_div(shape_.rows, kernels_.lanes) * kernels_.lanes;
        std::fill_n(partial.out, static_cast<std::ptrdiff_t>(padded_rows) * shape_.d_v, 0.0f);
        const int keys = *std::max_element(visible_, visible_ + shape_.rows);
        for (int first = 0; first < keys; first += kKeyTile) attend(task, first, std::min(kKeyTile, keys - first));
        for (int r = 0; r < shape_.rows; ++r) {
            const double lse = natural_lse(partial.max[r], partial.sum[r], call_.softmax_scale);
            *lse_rows_[r] = visible_[r] == 0 ? kInfinity : static_cast<float>(lse);
        }
        float factors[kPrefillRowTile];
        std::fill_n(factors, kPrefillRowTile, 1.0f);
        kernels_.store(shape_, partial, visible_, factors, out_rows_);
    }

private:
    void enter(const RowTile& task) {
        const PrefillShape& shape = call_.plan->shape;
        const core::RowTiling& tiling = task.tiling;
        shape_ = {.d_qk = static_cast<int>(shape.d_qk),
                  .d_v = static_cast<int>(shape.d_v),
                  .dtype = shape.dtype,
                  .scale_log2 = scale_to_log2(call_.softmax_scale),
                  .negate_queries = std::signbit(call_.softmax_scale),
                  .rows = tiling.rows(task.tile),
                  .value_offset = static_cast<int>(shape.d_qk)};
        const int first_head = task.kv_head * tiling.heads + tiling.first_head(task.tile);
        const int heads = core::min_of(tiling.tile_heads, tiling.heads - tiling.first_head(task.tile));
        for (int r = 0; r < kPrefillRowTile; ++r) {
            // Rows that only fill up a vector see what the last row sees, so that they never cause masking.
            const int row = std::min(r, shape_.rows - 1);
            const int token = tiling.first_token(task.tile) + row / heads;
            visible_[r] = core::visible_keys(call_.length_kv(task.request), tiling.s_q, token, shape.causal);
            const std::int64_t at = call_.cu_seqlens_q[task.request] + token;
            const int head = first_head + row % heads;
            q_rows_[r] = call_.q.at(at, head);
            out_rows_[r] = call_.out.at(at, head);
            lse_rows_[r] = call_.lse.at(at, head);
        }
    }

    void attend(const RowTile& task, int first, int count) {
        const std::uint16_t* keys[kKeyTile];
        const std::uint16_t* values[kKeyTile];
        const std::int64_t begin = std::int64_t{call_.cu_seqlens_kv[task.request]} + first;
        for (int k = 0; k < count; ++k) {
            keys[k] = call_.k.at(begin + k, task.kv_head);
            values[k] = call_.v.at(begin + k, task.kv_head);
        }
        kernels_.load_pairs(shape_, keys, values, count, buffers_.keys);
        int limits[kPrefillRowTile];
        for (int r = 0; r < kPrefillRowTile; ++r) limits[r] = visible_[r] - first;
        kernels_.attend(shape_, {.queries = buffers_.queries,
                                 .keys = buffers_.keys,
                                 .limits = limits,
                                 .key_count = count,
                                 .scratch = buffers_.scratch,
                                 .partial = buffers_.partial});
    }

    const core::DensePrefillCall& call_;
    const TileKernels& kernels_;
    Buffers buffers_;

    // Of the task in hand.
    TileShape shape_;
    int visible_[kPrefillRowTile] = {};  // keys that each row sees
    const std::uint16_t* q_rows_[kPrefillRowTile] = {};
    std::uint16_t* out_rows_[kPrefillRowTile] = {};
    float* lse_rows_[kPrefillRowTile] = {};
};

}  // namespace

std::size_t dense_prefill_workspace_bytes(const PrefillShape& shape, int num_workers) {
    return sizeof(float) * static_cast<std::size_t>(num_workers * Buffers::floats(shape));
}

Status dense_prefill(const core::DensePrefillCall& call) {
    const Result<const TileKernels*> kernels = select_kernels(call.plan->shape.dtype);
    if (!kernels.ok()) return kernels.status();
    dense_prefill_on(call, *kernels.value());
    return {};
}

void dense_prefill_on(const core::DensePrefillCall& call, const TileKernels& kernels) {
    const PrefillShape& shape = call.plan->shape;
    const int heads = static_cast<int>(shape.h_q / shape.h_kv);
    RowTileQueue queue(shape.b, static_cast<int>(shape.h_kv));
    const int threads = prefill_threads(call, shape.d_qk + shape.d_v);
    run_on_threads(threads, [&](int thread) {
        PrefillWorker worker(call, kernels, Buffers(shape, call.workspace, thread));
        const auto tiling_of = [&](std::int64_t request) {
            return ragged_tiling(heads, call.length_q(request), kPrefillRowTile);
        };
        for (RowTile task; queue.take(task, tiling_of);) worker.run(task);
    });
}

}  // namespace flashmla::backends::cpu
