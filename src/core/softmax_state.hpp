// The algebra of a softmax computed in parts, and the conventions of its log-sum-exp. docs/numerics.md states them.
//
// Inside the library everything is base 2: a score is softmax_scale * log2(e) * (q . k), a partial result is the pair
// (out, lse2) with lse2 = log2(sum 2^score), and a part without a key has lse2 = -inf. Callers see the natural-log LSE,
// and +inf for a row without a key. Merging takes an infinity of either sign as "no key": weight 0.
#pragma once

#include <cmath>
#include <limits>

#include "core/host_device.hpp"

namespace flashmla::core {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;
inline constexpr float kFloatInf = std::numeric_limits<float>::infinity();

// Scores seen so far: their reference maximum and sum of 2^(score - max). A kernel may let max lag behind the true
// maximum.
struct SoftmaxState {
    float max = -kFloatInf;
    float sum = 0;
};

FLASHMLA_HD bool is_empty(const SoftmaxState& state) { return state.sum == 0; }
FLASHMLA_HD bool is_empty_lse(float lse) { return lse == kFloatInf || lse == -kFloatInf; }

// 2^(from - to): what a sum or an accumulator kept at reference `from` is multiplied by to be kept at `to` >= from.
// 0 when nothing was kept yet (from = -inf).
FLASHMLA_HD float rescale_factor(float from, float to) { return from == -kFloatInf ? 0.0f : exp2f(from - to); }

FLASHMLA_HD SoftmaxState merge(const SoftmaxState& a, const SoftmaxState& b) {
    if (is_empty(a)) return b;
    if (is_empty(b)) return a;
    const float max = max_of(a.max, b.max);
    return {max, a.sum * rescale_factor(a.max, max) + b.sum * rescale_factor(b.max, max)};
}

FLASHMLA_HD float lse2(const SoftmaxState& state) {
    return is_empty(state) ? -kFloatInf : state.max + log2f(state.sum);
}

// The LSE that callers see.
FLASHMLA_HD float natural_lse(float lse2) { return is_empty_lse(lse2) ? kFloatInf : lse2 * kLn2; }

// The larger of two base-2 LSEs of partial results, empty ones ignored; -inf when both are empty.
FLASHMLA_HD float max_lse2(float a, float b) {
    return max_of(is_empty_lse(a) ? -kFloatInf : a, is_empty_lse(b) ? -kFloatInf : b);
}

// Unnormalised weight of a partial result in a merge whose largest LSE is `max`.
FLASHMLA_HD float partial_weight(float lse2, float max) { return is_empty_lse(lse2) ? 0.0f : exp2f(lse2 - max); }

// sum + weight * value, except that a weight of 0 never meets the value: 0 * NaN is NaN, and an empty part holds
// garbage.
FLASHMLA_HD float add_weighted(float sum, float weight, float value) {
    return weight == 0.0f ? sum : sum + weight * value;
}

}  // namespace flashmla::core
