#include "backends/cpu/worker.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/planted_fault.hpp"
#include "core/softmax_state.hpp"

namespace flashmla::backends::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// scale * log2(e), held to fp32's range: a finite scale must not turn 0 * scale into NaN.
float scale_to_log2(float scale) {
    const float scaled = std::abs(scale) * core::kLog2E;
    return std::isinf(scaled) && std::isfinite(scale) ? std::numeric_limits<float>::max() : scaled;
}

// Scores are unscaled, so this is exact where fp32 would overflow on the way.
float natural_lse(float max, float sum, float scale) {
    if (sum == 0) return std::numeric_limits<float>::quiet_NaN();  // every logit was -inf
    return static_cast<float>(static_cast<double>(max) * std::abs(static_cast<double>(scale)) +
                              std::log(static_cast<double>(sum)));
}

}  // namespace

void Worker::enter(const Task& task) {
    const DecodeShape& shape = call_.plan->shape;
    const int row_tile = task.unit % tiling_.tiles;
    const int kv_head = task.unit / tiling_.tiles;
    shape_ = {.d_qk = static_cast<int>(shape.d_qk),
              .d_v = static_cast<int>(shape.d_v),
              .dtype = shape.dtype,
              .scale_log2 = scale_to_log2(call_.softmax_scale),
              .negate_queries = std::signbit(call_.softmax_scale),
              .rows = tiling_.rows(row_tile)};
    first_token_ = tiling_.first_token(row_tile);
    first_head_ = kv_head * tiling_.heads + tiling_.first_head(row_tile);
    tile_heads_ = core::min_of(tiling_.tile_heads, tiling_.heads - tiling_.first_head(row_tile));
    for (int r = 0; r < kRowTile; ++r) {
        // Rows that only fill up a vector see what the last row sees, so that they never cause masking.
        const int token = first_token_ + std::min(r, shape_.rows - 1) / tile_heads_;
        visible_[r] = core::visible_keys(task.length, tiling_.s_q, token, shape.causal);
        if constexpr (core::planted(core::PlantedFault::kMaskOffByOne)) {
            if (shape.causal) visible_[r] = std::min(visible_[r] + 1, task.length);
        }
    }
}

// Rows of the cache for keys [first_key, first_key + count) of the request. Only pages that hold one of them are looked
// up.
void Worker::find_keys(const Task& task, int first_key, int count, const std::uint16_t** rows) const {
    const core::DecodeStrides& strides = call_.strides;
    const std::int64_t page_size = call_.plan->shape.page_size;
    const std::int32_t* table = call_.block_table + task.request * strides.table_b;
    const std::uint16_t* head =
        static_cast<const std::uint16_t*>(call_.k_cache) + task.unit / tiling_.tiles * strides.k_head;
    std::int64_t page_stride = strides.k_page;
    if constexpr (core::planted(core::PlantedFault::kWrongPageStride)) page_stride = page_size * strides.k_token;
    for (int k = 0; k < count;) {
        const std::int64_t page = (first_key + k) / page_size;
        std::int64_t offset = (first_key + k) % page_size;
        const std::uint16_t* key = head + table[page] * page_stride + offset * strides.k_token;
        for (; k < count && offset < page_size; ++k, ++offset, key += strides.k_token) rows[k] = key;
    }
}

void Worker::attend_chunk(const Task& task) const {
    const core::DecodeStrides& strides = call_.strides;
    const std::uint16_t* query_rows[kRowTile];
    const std::uint16_t* q = static_cast<const std::uint16_t*>(call_.q) + task.request * strides.q_b;
    for (int r = 0; r < shape_.rows; ++r) {
        query_rows[r] =
            q + (first_token_ + r / tile_heads_) * strides.q_token + (first_head_ + r % tile_heads_) * strides.q_head;
    }
    kernels_.pack_queries(shape_, query_rows, buffers_.queries(thread_));

    const Partial partial = buffers_.slot(task.slot);
    std::fill_n(partial.max, kRowTile, -kInfinity);
    std::fill_n(partial.sum, kRowTile, 0.0f);
    const int padded_rows = core::ceil_div(shape_.rows, kernels_.lanes) * kernels_.lanes;
    std::fill_n(partial.out, static_cast<std::ptrdiff_t>(padded_rows) * shape_.d_v, 0.0f);

    const int begin = task.chunk * kChunkTokens;
    const int keys = std::min(kChunkTokens, *std::max_element(visible_, visible_ + shape_.rows) - begin);
    const std::uint16_t* key_rows[2][kKeyTile];  // this tile's and the next one's
    int count = std::min(kKeyTile, keys);
    find_keys(task, begin, count, key_rows[0]);
    for (int done = 0, turn = 0; done < keys; turn ^= 1) {
        kernels_.load_keys(shape_, key_rows[turn], count, buffers_.keys(thread_));
        int limits[kRowTile];
        for (int r = 0; r < kRowTile; ++r) limits[r] = visible_[r] - (begin + done);
        done += count;
        const int next_count = std::min(kKeyTile, keys - done);
        find_keys(task, begin + done, next_count, key_rows[turn ^ 1]);
        kernels_.attend(shape_, {.queries = buffers_.queries(thread_),
                                 .keys = buffers_.keys(thread_),
                                 .limits = limits,
                                 .key_count = count,
                                 .scratch = buffers_.scratch(thread_),
                                 .partial = partial,
                                 .next_rows = key_rows[turn ^ 1],
                                 .next_count = next_count});
        count = next_count;
    }
}

void Worker::write(const Task& task, const Partial& result) const {
    const core::DecodeStrides& strides = call_.strides;
    std::uint16_t* out_rows[kRowTile];
    std::uint16_t* out = static_cast<std::uint16_t*>(call_.out) + task.request * strides.out_b;
    float* lse = call_.lse + task.request * strides.lse_b;
    for (int r = 0; r < shape_.rows; ++r) {
        const int token = first_token_ + r / tile_heads_;
        const int head = first_head_ + r % tile_heads_;
        out_rows[r] = out + token * strides.out_token + head * strides.out_head;
        lse[head * strides.lse_head + token * strides.lse_token] =
            visible_[r] == 0 ? kInfinity : natural_lse(result.max[r], result.sum[r], call_.softmax_scale);
    }
    kernels_.store(shape_, result, visible_, out_rows);
}

void Worker::run() {
    Task task;
    while (queue_.take(task)) {
        enter(task);
        attend_chunk(task);
        const int complete = queue_.finish(task, [&](int into, int from, int chunk) {
            if constexpr (core::planted(core::PlantedFault::kSplitMergedTwice)) {
                if (chunk == 1) kernels_.fold(shape_, buffers_.slot(into), buffers_.slot(into));
            }
            kernels_.fold(shape_, buffers_.slot(into), buffers_.slot(from));
        });
        if (complete < 0) continue;
        write(task, buffers_.slot(complete));
        queue_.release(complete);
    }
}

}  // namespace flashmla::backends::cpu
