// One key tile against one row tile: scores, online softmax, values. Templates over Ops (see tile_kernels.hpp).
#pragma once

#include "backends/cpu/config.hpp"
#include "backends/cpu/gemm.hpp"
#include "backends/cpu/tile_kernels.hpp"
#include "backends/cpu/vector.hpp"
#include "core/kv_format.hpp"
#include "core/planted_fault.hpp"

namespace flashmla::backends::cpu {

// Keys of a tile that some and that all of a panel's rows see.
struct KeyRange {
    int all = 0;
    int some = 0;
};

template <class Ops>
FLASHMLA_INLINE KeyRange key_range(const int* limits, int rows, int key_count) {
    int low = key_count;
    int high = 0;
    for (int r = 0; r < rows; ++r) {
        low = limits[r] < low ? limits[r] : low;
        high = limits[r] > high ? limits[r] : high;
    }
    return {low < 0 ? 0 : low, high > key_count ? key_count : high};
}

template <class Ops, int kVectors>
void score_keys(const TileShape& shape, const float* queries, const float* keys, int count, float* scores) {
    using ByKey = Walk<Ops::kKeyStride, 1>;
    constexpr int kWidth = kVectors * Ops::kLanes;
    const int depth = shape.d_qk / Ops::kDepthPerUnit;
    // In blocks of depth, so that the queries' part stays in L1 while the keys stream past it.
    for (int begin = 0; begin < depth; begin += Ops::kDepthBlock) {
        const int steps = depth - begin < Ops::kDepthBlock ? depth - begin : Ops::kDepthBlock;
        const float* b = queries + begin * kWidth;
        if (begin == 0) {
            gemm<Ops, ByKey, Start::kZero, kVectors>(keys + begin, b, count, steps, nullptr, scores, [] {});
        } else {
            gemm<Ops, ByKey, Start::kAdd, kVectors>(keys + begin, b, count, steps, nullptr, scores, [] {});
        }
    }
}

// Turns the scores of one vector of rows into weights, in place, and moves max and sum on. Returns the factor for what
// was accumulated before. A hidden score takes part in nothing, whatever it is (NaN too).
template <class Ops>
FLASHMLA_INLINE Float<Ops> softmax(float* scores, int stride, KeyRange range, Int<Ops> limits, float scale_log2,
                                   float* max, float* sum) {
    const Float<Ops> none = splat<Ops>(-__builtin_inff());
    const Float<Ops> scale = splat<Ops>(scale_log2);
    const Float<Ops> old_max = load<Float<Ops>>(max);
    Float<Ops> new_max = old_max;
    for (int k = 0; k < range.all; ++k) {
        const Float<Ops> score = load<Float<Ops>>(scores + k * stride);
        new_max = score > new_max ? score : new_max;
    }
    for (int k = range.all; k < range.some; ++k) {
        const Float<Ops> score = limits > k ? load<Float<Ops>>(scores + k * stride) : none;
        new_max = score > new_max ? score : new_max;
    }
    // With nothing but -inf so far, subtract 0: weights are 2^-inf = 0, not 2^NaN.
    const Float<Ops> base = new_max == none ? Float<Ops>{} : new_max;
    Float<Ops> total = {};
    for (int k = 0; k < range.all; ++k) {
        const Float<Ops> weight = exp2_nonpositive<Ops>((load<Float<Ops>>(scores + k * stride) - base) * scale);
        total += weight;
        store(scores + k * stride, weight);
    }
    for (int k = range.all; k < range.some; ++k) {
        const Float<Ops> weight = exp2_nonpositive<Ops>((load<Float<Ops>>(scores + k * stride) - base) * scale);
        const Float<Ops> visible = limits > k ? weight : Float<Ops>{};
        total += visible;
        store(scores + k * stride, visible);
    }
    Float<Ops> factor = rescale<Ops>(old_max, new_max, scale);
    if (core::planted(core::PlantedFault::kRescaleSkipped)) factor = splat<Ops>(1.0f);
    store(max, new_max);
    store(sum, Ops::multiply_add_f32(load<Float<Ops>>(sum), factor, total));
    return factor;
}

// Adds keys that only some rows of the panel see, one at a time: a weight of 0 must not meet a hidden value, which may
// be NaN.
template <class Ops, int kVectors>
void accumulate_masked(const TileShape& shape, const float* keys, const float* weights, KeyRange range,
                       const int* limits, float* out) {
    constexpr int kWidth = kVectors * Ops::kLanes;
    for (int dim = 0; dim < shape.d_v; ++dim) {
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
            const int lane = j * Ops::kLanes;
            const Int<Ops> limit = load<Int<Ops>>(limits + lane);
            Float<Ops> acc = load<Float<Ops>>(out + dim * kWidth + lane);
            for (int k = range.all; k < range.some; ++k) {
                const Float<Ops> weight = load<Float<Ops>>(weights + k * kWidth + lane);
                const Float<Ops> added =
                    Ops::multiply_add_f32(weight, splat<Ops>(Ops::value(keys, k, shape.value_offset + dim)), acc);
                acc = limit > k ? added : acc;
            }
            store(out + dim * kWidth + lane, acc);
        }
    }
}

// Fetches the next tile's keys into L2, a few cache lines at a time, so that converting them later does not wait for
// memory.
template <class Ops>
class KeyPrefetch {
public:
    // To be spread evenly over so many calls.
    FLASHMLA_INLINE KeyPrefetch(const TileShape& shape, const AttendArgs& args, int calls)
        : rows_(args.next_rows), end_row_(args.next_rows + args.next_count), row_bytes_(row_bytes(shape)) {
        per_call_ = (args.next_count * ((row_bytes_ + kLine - 1) / kLine) + calls - 1) / calls;
    }
    FLASHMLA_INLINE void operator()() {
        for (int i = 0; i < per_call_ && rows_ < end_row_; ++i) {
            __builtin_prefetch(*rows_ + offset_, 0, 2);
            offset_ += kLine;
            if (offset_ < row_bytes_) continue;
            offset_ = 0;
            ++rows_;
        }
    }

private:
    // Of a record that lie together, from its first value on.
    static FLASHMLA_INLINE int row_bytes(const TileShape& shape) {
        switch (shape.format) {
            case CacheFormat::kBFloat16:
            case CacheFormat::kFloat16: return 2 * shape.d_qk;
            case CacheFormat::kFp8Flat: return shape.d_qk;
            case CacheFormat::kFp8_656: return core::kv656::kRecordBytes;
            case CacheFormat::kFp8_584: return core::kv584::kValueBytes;
        }
        return 0;
    }

    static constexpr int kLine = 64;
    const std::uint8_t* const* rows_;
    const std::uint8_t* const* end_row_;
    int row_bytes_;
    int offset_ = 0;
    int per_call_ = 0;
};

template <class Ops, int kVectors>
void accumulate(const TileShape& shape, const float* values, const float* weights, int units, const Float<Ops>* factors,
                float* out, KeyPrefetch<Ops>& prefetch) {
    using ByDim = Walk<1, Ops::kValueStride>;
    gemm<Ops, ByDim, Start::kRescale, kVectors>(values, weights, shape.d_v, units, factors, out, [&] { prefetch(); });
}

template <class Ops, int kVectors>
void attend_panel(const TileShape& shape, const AttendArgs& args, int first_row, KeyPrefetch<Ops>& prefetch) {
    constexpr int kWidth = kVectors * Ops::kLanes;
    const int* limits = args.limits + first_row;
    KeyRange range = key_range<Ops>(limits, kWidth, args.key_count);
    if (range.some <= 0) return;

    float* scores = args.scratch;
    score_keys<Ops, kVectors>(shape, args.queries + first_row * (shape.d_qk / Ops::kDepthPerUnit), args.keys,
                              range.some, scores);
    // A unit must not straddle the boundary between the keys that all rows see and the others.
    if (range.all < range.some) range.all -= range.all % Ops::kDepthPerUnit;
    Float<Ops> factors[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
        const int lane = j * Ops::kLanes;
        factors[j] = softmax<Ops>(scores + lane, kWidth, range, load<Int<Ops>>(limits + lane), shape.scale_log2,
                                  args.partial.max + first_row + lane, args.partial.sum + first_row + lane);
    }
    float* out = args.partial.out + static_cast<std::ptrdiff_t>(first_row) * shape.d_v;
    const float* weights = Ops::pack_weights(scores, range.all, kWidth, args.scratch + kKeyTile * kWidth);
    const int units = (range.all + Ops::kDepthPerUnit - 1) / Ops::kDepthPerUnit;
    // Paths that keep values apart from keys keep those that are no part of their key in the same place.
    const float* values = Ops::values(args.keys) + (Ops::kDepthPerUnit == 1 ? shape.value_offset : 0);
    accumulate<Ops, kVectors>(shape, values, weights, units, factors, out, prefetch);
    if (range.all < range.some) accumulate_masked<Ops, kVectors>(shape, args.keys, scores, range, limits, out);
}

// Calls body<kVectors>(first_row) for each panel of the tile.
template <class Ops, int kVectors, class Body>
FLASHMLA_INLINE void panel_of_width(int vectors, int first_row, const Body& body) {
    if (vectors == kVectors) {
        body.template operator()<kVectors>(first_row);
    } else if constexpr (kVectors > 1) {
        panel_of_width<Ops, kVectors - 1>(vectors, first_row, body);
    }
}

template <class Ops, class Body>
FLASHMLA_INLINE void for_each_panel(int rows, const Body& body) {
    constexpr int kPanelRows = Ops::kPanelVectors * Ops::kLanes;
    for (int first = 0; first < rows; first += kPanelRows) {
        const int left = (rows - first + Ops::kLanes - 1) / Ops::kLanes;
        panel_of_width<Ops, Ops::kPanelVectors>(left < Ops::kPanelVectors ? left : Ops::kPanelVectors, first, body);
    }
}

template <class Ops>
void attend(const TileShape& shape, const AttendArgs& args) {
    constexpr int kPanelRows = Ops::kPanelVectors * Ops::kLanes;
    const int panels = (shape.rows + kPanelRows - 1) / kPanelRows;
    KeyPrefetch<Ops> prefetch(shape, args, panels * (shape.d_v / Ops::template tile<Ops::kPanelVectors>()));
    for_each_panel<Ops>(shape.rows, [&]<int kVectors>(int first_row) {
        attend_panel<Ops, kVectors>(shape, args, first_row, prefetch);
    });
}

}  // namespace flashmla::backends::cpu
