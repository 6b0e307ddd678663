// Dense prefill cases: hard data in guarded, strided tensors, and their comparison with the oracle.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "flashmla/prefill.hpp"
#include "reference/error_bound.hpp"
#include "reference/prefill.hpp"
#include "support/guarded_tensor.hpp"

namespace flashmla::testing_support {

struct PrefillSpec {
    std::string name = "plain";
    std::vector<std::pair<std::int32_t, std::int32_t>> lengths = {{70, 70}};  // (query, key) tokens a request
    std::int64_t h_q = 2;
    std::int64_t h_kv = 2;
    std::int64_t d_qk = 192;
    std::int64_t d_v = 128;
    DType dtype = DType::kBFloat16;
    bool causal = true;
    double logit_std = 1;     // of random logits
    bool rising = false;      // keys whose logits rise along the request: every tile raises the maximum
    bool head_major = false;  // strides: heads outside tokens
    std::int64_t gap = 3;     // elements free between rows, 0 = packed
    double scale = 0;         // 0: the default
    std::uint64_t seed = 1;
};

void PrintTo(const PrefillSpec& spec, std::ostream* stream);

class PrefillCase {
public:
    explicit PrefillCase(const PrefillSpec& spec);

    const PrefillSpec& spec() const { return spec_; }
    DensePrefillArgs args() const;
    DensePrefillBackwardArgs backward_args() const;

    GuardedTensor& q() { return q_; }
    GuardedTensor& k() { return k_; }
    GuardedTensor& v() { return v_; }
    GuardedTensor& cu_q() { return cu_q_; }
    GuardedTensor& cu_kv() { return cu_kv_; }
    GuardedTensor& out() { return out_; }
    GuardedTensor& lse() { return lse_; }
    GuardedTensor& dout() { return dout_; }
    GuardedTensor& dlse() { return dlse_; }
    GuardedTensor& dq() { return dq_; }
    GuardedTensor& dk() { return dk_; }
    GuardedTensor& dv() { return dv_; }
    void reset_outputs();  // out and lse hold poison again

    // out and lse of the forward pass: every element written, no guard touched, every `step`-th row within the bound.
    testing::AssertionResult matches_oracle(const reference::RoundingModel& model, std::int64_t step = 1) const;

private:
    PrefillSpec spec_;
    GuardedTensor q_, k_, v_, cu_q_, cu_kv_, out_, lse_, dout_, dlse_, dq_, dk_, dv_;
};

// Rows of a call: every one, or every step-th.
std::vector<reference::Row> prefill_rows(const DensePrefillArgs& args, std::int64_t step = 1);

// Named cases of the forward and backward tests.
std::vector<PrefillSpec> prefill_families();

}  // namespace flashmla::testing_support
