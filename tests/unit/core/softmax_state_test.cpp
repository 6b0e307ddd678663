#include "core/softmax_state.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace flashmla::core {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SoftmaxState state_of(const std::vector<float>& scores) {
    SoftmaxState state;
    for (float score : scores) state = merge(state, {score, 1});
    return state;
}

TEST(SoftmaxState, SumsPowersOfTwo) {
    const SoftmaxState state = state_of({0, 1, 2, 3});
    EXPECT_EQ(state.max, 3);
    EXPECT_EQ(state.sum, 1.875f);
    EXPECT_FLOAT_EQ(lse2(state), std::log2(15.0f));
    EXPECT_FLOAT_EQ(natural_lse(lse2(state)), std::log(15.0f));
}

TEST(SoftmaxState, MergeDoesNotCareAboutOrderOrEmptyParts) {
    const SoftmaxState a = state_of({-3, 5});
    const SoftmaxState b = state_of({7, 7});
    EXPECT_EQ(lse2(merge(a, b)), lse2(merge(b, a)));
    EXPECT_EQ(lse2(merge(a, SoftmaxState{})), lse2(a));
    EXPECT_EQ(lse2(merge(SoftmaxState{}, a)), lse2(a));
}

TEST(SoftmaxState, AReferenceBelowTheTrueMaximumMeansTheSame) {
    // Scores 8 and 6 kept at reference 3, and at their own maximum.
    EXPECT_FLOAT_EQ(lse2({3, 32 + 8}), lse2({8, 1.25f}));
}

TEST(SoftmaxState, RescaleFactorStartsAtZeroAndNeverMakesNan) {
    EXPECT_EQ(rescale_factor(-kInf, 5), 0);
    EXPECT_EQ(rescale_factor(-kInf, -kInf), 0);
    EXPECT_EQ(rescale_factor(2, 5), 0.125f);
    EXPECT_EQ(rescale_factor(-3e38f, 3e38f), 0);
}

TEST(SoftmaxState, EmptyRowIsMinusInfinityInsideAndPlusInfinityOutside) {
    EXPECT_TRUE(is_empty(SoftmaxState{}));
    EXPECT_TRUE(is_empty(merge(SoftmaxState{}, SoftmaxState{})));
    EXPECT_EQ(lse2(SoftmaxState{}), -kInf);
    EXPECT_EQ(natural_lse(-kInf), kInf);
    EXPECT_EQ(natural_lse(kInf), kInf);
}

TEST(PartialMerge, BothInfinitiesWeighNothing) {
    EXPECT_EQ(max_lse2(kInf, -4), -4);
    EXPECT_EQ(max_lse2(-4, kInf), -4);
    EXPECT_EQ(max_lse2(kInf, -kInf), -kInf);
    EXPECT_EQ(partial_weight(kInf, -4), 0);
    EXPECT_EQ(partial_weight(-kInf, -4), 0);
    EXPECT_EQ(partial_weight(-kInf, -kInf), 0);
    EXPECT_EQ(partial_weight(-4, -4), 1);
    EXPECT_EQ(partial_weight(-6, -4), 0.25f);
}

TEST(PartialMerge, ZeroWeightNeverMeetsTheValue) {
    EXPECT_EQ(add_weighted(3, 0, kNan), 3);
    EXPECT_EQ(add_weighted(3, 0, kInf), 3);
    EXPECT_EQ(add_weighted(3, 0.5f, 4), 5);
    EXPECT_TRUE(std::isnan(add_weighted(3, 0.5f, kNan)));
}

TEST(PartialMerge, SumsTwoAndEightWithOutputsZeroAndOneGiveFourFifths) {
    const float a = 1;  // log2 of 2
    const float b = 3;  // log2 of 8
    const float max = max_lse2(a, b);
    const float wa = partial_weight(a, max);
    const float wb = partial_weight(b, max);
    EXPECT_FLOAT_EQ(add_weighted(add_weighted(0, wa, 0), wb, 1) / (wa + wb), 0.8f);
    EXPECT_FLOAT_EQ(lse2({max, wa + wb}), std::log2(10.0f));
}

}  // namespace
}  // namespace flashmla::core
