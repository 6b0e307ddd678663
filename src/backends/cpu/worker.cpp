#include "backends/cpu/worker.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backends/cpu/softmax_scale.hpp"
#include "core/float_formats.hpp"
#include "core/planted_fault.hpp"

namespace flashmla::backends::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// exp(lse) / (exp(lse) + exp(sink)): no exponential of a finite number that matters overflows on the way.
float sink_factor(double lse, float sink) {
    const double factor = 1 / (1 + std::exp(static_cast<double>(sink) - lse));
    return static_cast<float>(core::planted(core::PlantedFault::kSinkTwice) ? factor * factor : factor);
}

// e4m3 codes as bf16 codes, which hold them exactly.
constexpr std::array<std::uint16_t, 256> kBf16OfE4m3 = [] {
    std::array<std::uint16_t, 256> codes{};
    for (int i = 0; i < 256; ++i) codes[i] = core::float_to_bf16(core::e4m3_to_float(static_cast<std::uint8_t>(i)));
    return codes;
}();

}  // namespace

void Worker::enter(const Task& task) {
    const DecodeShape& shape = call_.shape;
    const int row_tile = task.unit % tiling_.tiles;
    const int kv_head = task.unit / tiling_.tiles;
    value_scale_ = call_.descale_k.of(task.request);
    scale_ =
        static_cast<float>(static_cast<double>(call_.softmax_scale) * call_.descale_q.of(task.request) * value_scale_);
    shape_ = {.d_qk = static_cast<int>(shape.d_qk),
              .d_v = static_cast<int>(shape.d_v),
              .dtype = shape.dtype == DType::kFloat16 ? DType::kFloat16 : DType::kBFloat16,
              .format = shape.format,
              .scale_log2 = scale_to_log2(scale_),
              .negate_queries = std::signbit(scale_),
              .rows = tiling_.rows(row_tile)};
    first_token_ = tiling_.first_token(row_tile);
    first_head_ = kv_head * tiling_.heads + tiling_.first_head(row_tile);
    tile_heads_ = core::min_of(tiling_.tile_heads, tiling_.heads - tiling_.first_head(row_tile));
    if (call_.sparse()) {
        std::fill_n(visible_, kRowTile, tile_keys(call_, tiling_, task));
        return;
    }
    for (int r = 0; r < kRowTile; ++r) {
        // Rows that only fill up a vector see what the last row sees, so that they never cause masking.
        const int token = first_token_ + std::min(r, shape_.rows - 1) / tile_heads_;
        visible_[r] = core::visible_keys(task.length, tiling_.s_q, token, shape.causal);
        if (core::planted(core::PlantedFault::kMaskOffByOne)) {
            if (shape.causal) visible_[r] = std::min(visible_[r] + 1, task.length);
        }
    }
}

void Worker::pack_queries(const Task& task) const {
    const core::DecodeStrides& strides = call_.strides;
    const std::uint16_t* rows[kRowTile];
    const auto offset = [&](int r) {
        return task.request * strides.q_b + (first_token_ + r / tile_heads_) * strides.q_token +
               (first_head_ + r % tile_heads_) * strides.q_head;
    };
    if (call_.shape.dtype == DType::kFloat8E4m3) {
        // The keys' buffer is free yet.
        static_assert(kRowTile * kMaxDepth * sizeof(std::uint16_t) <= kKeyBufferFloats * sizeof(float));
        auto* to = reinterpret_cast<std::uint16_t*>(buffers_.keys(thread_));
        for (int r = 0; r < shape_.rows; ++r, to += shape_.d_qk) {
            const std::uint8_t* from = static_cast<const std::uint8_t*>(call_.q) + offset(r);
            for (int d = 0; d < shape_.d_qk; ++d) to[d] = kBf16OfE4m3[from[d]];
            rows[r] = to;
        }
    } else {
        for (int r = 0; r < shape_.rows; ++r) rows[r] = static_cast<const std::uint16_t*>(call_.q) + offset(r);
    }
    kernels_.pack_queries(shape_, rows, buffers_.queries(thread_));
}

void Worker::attend_chunk(const Task& task) const {
    pack_queries(task);
    const Partial partial = buffers_.slot(task.slot);
    std::fill_n(partial.max, kRowTile, -kInfinity);
    std::fill_n(partial.sum, kRowTile, 0.0f);
    const int padded_rows = core::ceil_div(shape_.rows, kernels_.lanes) * kernels_.lanes;
    std::fill_n(partial.out, static_cast<std::ptrdiff_t>(padded_rows) * shape_.d_v, 0.0f);

    const int begin = task.chunk * kChunkTokens;
    const int seen = *std::max_element(visible_, visible_ + shape_.rows);
    KeyWalk walk(call_, {.request = task.request,
                         .token = first_token_,
                         .kv_head = task.unit / tiling_.tiles,
                         .begin = begin,
                         .end = begin + std::min(kChunkTokens, seen - begin)});
    KeyRows rows[2];  // this tile's and the next one's
    int done = 0;
    for (int turn = 0, count = walk.next(rows[0]); count > 0; turn ^= 1) {
        kernels_.load_keys(shape_, rows[turn], count, buffers_.keys(thread_));
        int limits[kRowTile];
        for (int r = 0; r < kRowTile; ++r) limits[r] = call_.sparse() ? count : visible_[r] - (begin + done);
        done += count;
        const int next_count = walk.next(rows[turn ^ 1]);
        kernels_.attend(shape_, {.queries = buffers_.queries(thread_),
                                 .keys = buffers_.keys(thread_),
                                 .limits = limits,
                                 .key_count = count,
                                 .scratch = buffers_.scratch(thread_),
                                 .partial = partial,
                                 .next_rows = rows[turn ^ 1].values,
                                 .next_count = next_count});
        count = next_count;
    }
}

void Worker::write(const Task& task, const Partial& result) {
    const core::DecodeStrides& strides = call_.strides;
    if (call_.sparse() && !any_key(call_, task.request, first_token_)) std::fill_n(visible_, kRowTile, 0);
    std::uint16_t* out_rows[kRowTile];
    float factors[kRowTile] = {};
    std::uint16_t* out = static_cast<std::uint16_t*>(call_.out) + task.request * strides.out_b;
    for (int r = 0; r < shape_.rows; ++r) {
        const int token = first_token_ + r / tile_heads_;
        const int head = first_head_ + r % tile_heads_;
        const std::int64_t place = task.request * strides.lse_b + head * strides.lse_head + token * strides.lse_token;
        const bool empty = visible_[r] == 0;
        const double lse = natural_lse(result.max[r], result.sum[r], scale_);
        out_rows[r] = out + token * strides.out_token + head * strides.out_head;
        factors[r] = value_scale_ * (call_.attn_sink != nullptr ? sink_factor(lse, call_.attn_sink[head]) : 1.0f);
        call_.lse[place] = empty ? kInfinity : static_cast<float>(lse);
        if (call_.max_logits == nullptr) continue;
        const int of = core::planted(core::PlantedFault::kMaxLogitOfWrongRow) ? (r + 1) % shape_.rows : r;
        call_.max_logits[head * call_.max_head + token * call_.max_token] =
            empty ? -kInfinity : static_cast<float>(scaled(result.max[of], scale_));
    }
    kernels_.store(shape_, result, visible_, factors, out_rows);
}

void Worker::run() {
    Task task;
    while (queue_.take(task)) {
        enter(task);
        attend_chunk(task);
        const int complete = queue_.finish(task, [&](int into, int from, int chunk) {
            if (core::planted(core::PlantedFault::kSplitMergedTwice)) {
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
