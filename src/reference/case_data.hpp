// The numbers of a case: queries and keys whose logits have the wanted spread and order.
//
// Logits of random data have standard deviation close to |scale| * q_std * sqrt(d_qk) for keys of deviation 1. An order
// is put on top through two columns: every query row holds kLever in the last two, every key the wanted logit over
// (scale * kLever), split into a rounded part and the rounding error, so that 16-bit keys still tell thousands of steps
// apart.
#pragma once

#include <cstdint>

#include "reference/decode_spec.hpp"
#include "reference/random.hpp"

namespace flashmla::reference {

class CaseData {
public:
    explicit CaseData(const DecodeSpec& spec);

    // d_qk values of a query row of request `request`, before they are rounded to their dtype.
    void make_query(Random& random, std::int64_t request, float* row) const;
    // d_qk values of key `key` of request `request`, before they are encoded.
    void make_key(Random& random, std::int64_t request, std::int64_t key, float* row) const;

private:
    double background_std(std::int64_t request) const;
    double position(std::int64_t request, std::int64_t key) const;
    double ordered_logit(std::int64_t request, std::int64_t key) const;
    float as_stored(float value) const;

    const DecodeSpec& spec_;
    double scale_;
};

// What "no live token" looks like.
std::uint16_t poison_code(Poison poison, DType dtype);

}  // namespace flashmla::reference
