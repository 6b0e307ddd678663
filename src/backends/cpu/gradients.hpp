// The backward of one tile of (query, key) pairs: softmax weights from the LSE, and what they add to the gradients.
//
// One side of the tile is *resident*: its rows are lanes, packed in panels, and its gradients are accumulated. The
// other is *streamed*: rows of fp32, the A of every product. Queries resident give dq, keys resident give dk and dv;
// the arithmetic is the same. All products are fp32: a template over Ops with one value a unit.
#pragma once

#include "backends/cpu/attend.hpp"
#include "backends/cpu/project.hpp"
#include "core/softmax_state.hpp"

namespace flashmla::backends::cpu {

// Streamed rows that lanes of a panel see: all lanes see [all.begin, all.end), some see [some.begin, some.end) beside.
struct SeenRows {
    int all_begin = 0, all_end = 0;
    int some_begin = 0, some_end = 0;
};

template <class Ops>
FLASHMLA_INLINE SeenRows seen_rows(const GradientArgs& args, int first_lane, int lanes) {
    if (!args.queries_streamed) {  // lane r sees keys [0, limits[r])
        const KeyRange range = key_range<Ops>(args.limits + first_lane, lanes, args.count);
        return {0, range.all, range.all, range.some};
    }
    // Query s sees lanes [0, limits[s]), and limits rise with s.
    const int last = first_lane + lanes < args.rows ? first_lane + lanes : args.rows;
    SeenRows seen{.all_begin = args.count, .all_end = args.count, .some_begin = 0, .some_end = args.count};
    while (seen.some_begin < args.count && args.limits[seen.some_begin] <= first_lane) ++seen.some_begin;
    while (seen.all_begin > seen.some_begin && args.limits[seen.all_begin - 1] >= last) --seen.all_begin;
    seen.some_end = seen.all_begin;
    return seen;
}

// Lanes that see streamed row s, as a vector of ones (in every bit) and zeros.
template <class Ops>
FLASHMLA_INLINE Int<Ops> seeing_lanes(const GradientArgs& args, int s, int lane) {
    if (!args.queries_streamed) return load<Int<Ops>>(args.limits + lane) > s;
    Int<Ops> index = {};
    for (int i = 0; i < Ops::kLanes; ++i) index[i] = lane + i;
    return index < args.limits[s];
}

// scores: in: q . k, out: the weights P. products: in: dout . v, out: P (dout . v - delta).
template <class Ops>
FLASHMLA_INLINE void weigh(const GradientArgs& args, int s, int lane, bool masked, float* scores, float* products) {
    const Float<Ops> lse = args.queries_streamed ? splat<Ops>(args.lse[s]) : load<Float<Ops>>(args.lse + lane);
    const Float<Ops> delta = args.queries_streamed ? splat<Ops>(args.delta[s]) : load<Float<Ops>>(args.delta + lane);
    // One rounding of the difference: logit and LSE may be large and close.
    const Float<Ops> logit = Ops::multiply_add_f32(load<Float<Ops>>(scores), splat<Ops>(args.scale), -lse);
    Float<Ops> weight = exp2_nonpositive<Ops>(logit * splat<Ops>(core::kLog2E));
    Float<Ops> gradient = weight * (load<Float<Ops>>(products) - delta);
    if (masked) {
        const Int<Ops> seen = seeing_lanes<Ops>(args, s, lane);
        weight = seen ? weight : Float<Ops>{};
        gradient = seen ? gradient : Float<Ops>{};
    }
    store(scores, weight);
    store(products, gradient);
}

// sums[dim][lane] += sum over streamed rows of row[dim] * weights[row][lane]. Rows that only some lanes see are added
// one by one under a mask: a weight of 0 must not meet a hidden value, which may be NaN.
template <class Ops, int kVectors>
void add_streamed(const GradientArgs& args, const SeenRows& seen, int first_lane, int column, int width,
                  const float* weights, float* sums) {
    using Products = Fp32Products<Ops>;
    using ByDim = Walk<1, Ops::kKeyStride>;
    constexpr int kWidth = kVectors * Ops::kLanes;
    const float* rows = args.streamed + column;
    gemm<Products, ByDim, Start::kAdd, kVectors>(rows + seen.all_begin * Ops::kKeyStride,
                                                 weights + seen.all_begin * kWidth, width,
                                                 seen.all_end - seen.all_begin, nullptr, sums, [] {});
    if (seen.some_begin >= seen.some_end) return;
    for (int dim = 0; dim < width; ++dim) {
        for (int lane = 0; lane < kWidth; lane += Ops::kLanes) {
            Float<Ops> sum = load<Float<Ops>>(sums + dim * kWidth + lane);
            for (int s = seen.some_begin; s < seen.some_end; ++s) {
                const Float<Ops> value = splat<Ops>(rows[s * Ops::kKeyStride + dim]);
                const Float<Ops> weight = load<Float<Ops>>(weights + s * kWidth + lane);
                sum = seeing_lanes<Ops>(args, s, first_lane + lane) ? Ops::multiply_add_f32(weight, value, sum) : sum;
            }
            store(sums + dim * kWidth + lane, sum);
        }
    }
}

template <class Ops, int kVectors>
void gradients_of_panel(const GradientArgs& args, int first_lane) {
    using Products = Fp32Products<Ops>;
    using ByRow = Walk<Ops::kKeyStride, 1>;
    constexpr int kWidth = kVectors * Ops::kLanes;
    const SeenRows seen = seen_rows<Ops>(args, first_lane, kWidth);
    const int begin =
        seen.some_begin < seen.some_end && seen.some_begin < seen.all_begin ? seen.some_begin : seen.all_begin;
    const int end = seen.some_end > seen.all_end ? seen.some_end : seen.all_end;
    if (begin >= end) return;

    float* scores = args.scratch;
    float* products = args.scratch + kKeyTile * kWidth;
    const float* rows = args.streamed + begin * Ops::kKeyStride;
    gemm<Products, ByRow, Start::kZero, kVectors>(rows, args.resident_qk + first_lane * args.d_qk, end - begin,
                                                  args.d_qk, nullptr, scores + begin * kWidth, [] {});
    gemm<Products, ByRow, Start::kZero, kVectors>(rows + args.d_qk, args.resident_v + first_lane * args.d_v,
                                                  end - begin, args.d_v, nullptr, products + begin * kWidth, [] {});
    for (int s = begin; s < end; ++s) {
        const bool masked = s < seen.all_begin || s >= seen.all_end;
        for (int lane = 0; lane < kWidth; lane += Ops::kLanes) {
            const int at = s * kWidth + lane;
            weigh<Ops>(args, s, first_lane + lane, masked, scores + at, products + at);
        }
    }
    add_streamed<Ops, kVectors>(args, seen, first_lane, 0, args.d_qk, products,
                                args.gradient_qk + first_lane * args.d_qk);
    if (args.gradient_v == nullptr) return;
    add_streamed<Ops, kVectors>(args, seen, first_lane, args.d_qk, args.d_v, scores,
                                args.gradient_v + first_lane * args.d_v);
}

template <class Ops>
void add_gradients(const GradientArgs& args) {
    for_each_panel<Ops>(args.rows,
                        [&]<int kVectors>(int first_lane) { gradients_of_panel<Ops, kVectors>(args, first_lane); });
}

// Null on paths whose units are pairs: the backward works on fp32 values.
template <class Ops>
constexpr auto gradients_of() -> void (*)(const GradientArgs&) {
    if constexpr (Ops::kDepthPerUnit == 1) {
        return &add_gradients<Ops>;
    } else {
        return nullptr;
    }
}

}  // namespace flashmla::backends::cpu
