// The executable specification of decode, dense and sparse, over every cache format: double precision, plain loops, one
// query row at a time.
//
// It takes the same arguments as the library, reads CPU memory, and never touches a key that the row does not see. Its
// own rounding is of the order of 1e-13, far below anything it is compared with.
#pragma once

#include <span>
#include <vector>

#include "flashmla/decode.hpp"
#include "reference/tensor_access.hpp"

namespace flashmla::reference {

// What q.k sums up for one key: the scaled logit and the same sum with absolute values, for error bounds.
struct Score {
    double logit = 0;
    double magnitude = 0;  // |softmax_scale| * sum_i |q_i k_i|
};

struct RowResult {
    std::vector<Score> scores;  // one a visible key
    double max_logit = 0;       // -inf without a visible key
    double lse = 0;             // natural log, without the sink; +inf without a visible key
    double sink_factor = 1;     // exp(lse) / (exp(lse) + exp(sink))
    std::vector<double> mean;   // d_v, before the sink
    std::vector<double> out;    // mean * sink_factor; zeros without a visible key
};

// The scale that a call uses.
double softmax_scale(const DecodeArgs& args);

// Dense: keys [0, result) are visible to the row.
std::int64_t visible_keys(const DecodeArgs& args, const Row& row);

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
