// The oracle's backward against finite differences of the oracle's forward.
#include "reference/prefill_backward.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/element.hpp"
#include "support/prefill_case.hpp"

namespace flashmla::reference {
namespace {

using testing_support::GuardedTensor;
using testing_support::PrefillCase;

// sum dout . out + sum dlse . lse, whose derivatives the backward gives.
double loss(const DensePrefillBackwardArgs& args) {
    double sum = 0;
    for (const Row& row : testing_support::prefill_rows(args.forward)) {
        const RowResult exact = prefill_row(args.forward, row);
        const std::int64_t token = request_span(args.forward.cu_seqlens_q, row.request).begin + row.token;
        for (std::size_t d = 0; d < exact.out.size(); ++d) {
            sum += element(args.dout, {token, row.head, static_cast<std::int64_t>(d)}) * exact.out[d];
        }
        if (std::isfinite(exact.lse) && args.dlse.rank != 0) sum += element(args.dlse, {token, row.head}) * exact.lse;
    }
    return sum;
}

// d loss / d element, from four more points: the error is of the order of the fourth power of the step.
double derivative(const DensePrefillBackwardArgs& args, GuardedTensor& tensor, std::int64_t i) {
    constexpr double kStep = 0x1p-6;
    const double before = tensor.get(i);
    const auto at = [&](double steps) {
        tensor.set(i, before + steps * kStep);
        return loss(args);
    };
    const double slope = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * kStep);
    tensor.set(i, before);
    return slope;
}

// fp32 elements in steps of 2^-8, so that the points above are exact.
void round_to_steps(GuardedTensor& tensor) {
    for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, std::round(tensor.get(i) * 256) / 256);
}

void expect_finite_differences(bool causal, bool with_dlse) {
    PrefillCase c({.lengths = {{3, 5}, {4, 2}, {0, 1}},
                   .h_q = 4,
                   .h_kv = 2,
                   .d_qk = 6,
                   .d_v = 3,
                   .dtype = DType::kFloat32,
                   .causal = causal});
    for (GuardedTensor* tensor : {&c.q(), &c.k(), &c.v()}) round_to_steps(*tensor);
    DensePrefillBackwardArgs args = c.backward_args();
    if (!with_dlse) args.dlse = {};
    const Gradients gradients = prefill_backward(args, Forward::kExact);
    const auto check = [&](GuardedTensor& tensor, const Gradient& gradient, const char* name) {
        for (std::int64_t i = 0; i < tensor.elements(); ++i) {
            ASSERT_NEAR(gradient.value[static_cast<std::size_t>(i)], derivative(args, tensor, i), 1e-7) << name << i;
        }
    };
    check(c.q(), gradients.dq, "dq ");
    check(c.k(), gradients.dk, "dk ");
    check(c.v(), gradients.dv, "dv ");
}

TEST(PrefillBackwardOracle, IsTheDerivativeOfTheForward) {
    expect_finite_differences(false, false);
    expect_finite_differences(true, false);
}

TEST(PrefillBackwardOracle, AddsTheGradientThatArrivesThroughTheLse) { expect_finite_differences(true, true); }

TEST(PrefillBackwardOracle, OneKeyPassesTheGradientToItsValueAlone) {
    PrefillCase c({.lengths = {{1, 1}}, .h_q = 1, .h_kv = 1, .d_qk = 4, .d_v = 2, .dtype = DType::kFloat32});
    DensePrefillBackwardArgs args = c.backward_args();
    args.dlse = {};
    const Gradients gradients = prefill_backward(args, Forward::kExact);
    for (std::size_t d = 0; d < 4; ++d) EXPECT_NEAR(gradients.dq.value[d], 0, 1e-12);
    for (std::size_t d = 0; d < 2; ++d)
        EXPECT_NEAR(gradients.dv.value[d], c.dout().get(static_cast<std::int64_t>(d)), 1e-12);
}

}  // namespace
}  // namespace flashmla::reference
