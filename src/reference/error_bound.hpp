// How far a correct kernel may be from the oracle, row by row, from the data and the kernel's rounding points alone.
// docs/numerics.md derives every term; no test has a tolerance of its own.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "reference/decode.hpp"

namespace flashmla::reference {

inline constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// Where a kernel rounds.
struct RoundingModel {
    DType weights = DType::kFloat32;      // the softmax weights, before they multiply the values
    bool sum_of_rounded_weights = false;  // the normalising sum adds the weights after that rounding
    DType partials = DType::kFloat32;     // the normalised results of splits, before the merge
    // Keys that one running fp32 sum takes before it is merged with others.
    std::int64_t longest_sum = kNoLimit;
    // Relative error of one fp32 addition: half a unit when it rounds, a whole one when it cuts.
    double addition = 0x1p-24;
};

// Products and sums in fp32, as the CPU paths without 16-bit products work.
constexpr RoundingModel fp32_model(std::int64_t longest_sum = kNoLimit) { return {.longest_sum = longest_sum}; }

// 16-bit weights with fp32 sums, as matrix units work; their additions may cut instead of round.
constexpr RoundingModel matrix_unit_model(DType dtype, std::int64_t longest_sum = kNoLimit) {
    return {.weights = dtype, .longest_sum = longest_sum, .addition = 0x1p-23};
}

// The model of a CPU path ("portable", "avx2", "avx512", "avx512_bf16"): only the last has 16-bit products, for bf16
// (and e4m3) queries and caches whose dequantised values are bf16 values exactly.
constexpr RoundingModel cpu_model(std::string_view path, DType dtype, std::int64_t longest_sum = kNoLimit,
                                  CacheFormat format = CacheFormat::kBFloat16) {
    const bool pairs = path.ends_with("avx512_bf16") && dtype != DType::kFloat16 && format != CacheFormat::kFp8_656;
    return {.weights = pairs ? DType::kBFloat16 : DType::kFloat32, .longest_sum = longest_sum};
}

struct RowBound {
    std::vector<double> out;  // d_v: |out - exact| <= out[d], rounding of the stored value included
    double lse = 0;           // |lse - exact| <= lse; 0 for a row without a visible key
    double max_logit = 0;     // of the largest scaled logit, likewise
};

// `exact` is attend_row's result for the row, stored as `out_dtype`. Infinite bounds mean that the data cannot be
// resolved in the model's precision.
RowBound error_bound(const AttentionRow& row, const RowResult& exact, DType out_dtype, const RoundingModel& model);
RowBound error_bound(const DecodeArgs& args, const Row& row, const RowResult& exact, const RoundingModel& model);

}  // namespace flashmla::reference
