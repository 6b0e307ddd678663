// The executable specification of dense prefill: double precision, plain loops, one query row at a time.
#pragma once

#include <cstdint>

#include "flashmla/prefill.hpp"
#include "reference/attention.hpp"
#include "reference/error_bound.hpp"
#include "reference/tensor_access.hpp"

namespace flashmla::reference {

// First token and number of tokens of a request, from cumulative lengths.
struct Span {
    std::int64_t begin = 0;
    std::int64_t count = 0;
};
Span request_span(const TensorView& cu_seqlens, std::int64_t request);

double softmax_scale(const DensePrefillArgs& args);

// Keys [0, result) of the row's request are visible to it. Row::token counts from the request's first token.
std::int64_t visible_keys(const DensePrefillArgs& args, const Row& row);

// The row as attend_row takes it; the memory of `args` must outlive it.
AttentionRow attention_row(const DensePrefillArgs& args, const Row& row);

RowResult prefill_row(const DensePrefillArgs& args, const Row& row);

}  // namespace flashmla::reference
