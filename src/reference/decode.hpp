// The executable specification of decode, dense and sparse, over every cache format: double precision, plain loops, one
// query row at a time.
//
// It takes the same arguments as the library, reads CPU memory, and never touches a key that the row does not see. Its
// own rounding is of the order of 1e-13, far below anything it is compared with.
#pragma once

#include <span>
#include <vector>

#include "flashmla/decode.hpp"
#include "reference/attention.hpp"
#include "reference/tensor_access.hpp"

namespace flashmla::reference {

// The scale that a call uses.
double softmax_scale(const DecodeArgs& args);

// Dense: keys [0, result) are visible to the row.
std::int64_t visible_keys(const DecodeArgs& args, const Row& row);

// The row as attend_row takes it; `args` must outlive it.
AttentionRow attention_row(const DecodeArgs& args, const Row& row);

RowResult decode_row(const DecodeArgs& args, const Row& row);

struct DecodeResult {
    std::vector<double> out;  // (b, s_q, h_q, d_v), contiguous
    std::vector<double> lse;  // (b, h_q, s_q), contiguous
};

DecodeResult decode_all(const DecodeArgs& args);

// A result over some of the keys of one row. lse = +inf or -inf means no key, and out is not read then.
struct Partial {
    std::vector<double> out;
    double lse = 0;
};

// The result over all the keys, from results over disjoint parts of them. No part with a key: zeros and +inf.
Partial merge(std::span<const Partial> parts);

}  // namespace flashmla::reference
