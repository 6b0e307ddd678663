// The generators of KV lengths and the suites of shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "bench/lengths.hpp"
#include "bench/sampling.hpp"
#include "bench/suites.hpp"

namespace flashmla::bench {
namespace {

TEST(RaggedLengths, NormalAroundTheMeanWithinItsLimits) {
    constexpr std::int64_t kB = 20000, kMean = 4096;
    const Lengths lengths = ragged_lengths(kB, kMean, 2, 0);
    const double mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / kB;
    double squares = 0;
    for (const std::int32_t length : lengths) squares += (length - mean) * (length - mean);
    // Cutting a normal distribution off at two deviations leaves its mean and 0.88 to 0.98 of its deviation.
    EXPECT_NEAR(mean, kMean, 0.02 * kMean);
    EXPECT_NEAR(std::sqrt(squares / kB), 0.5 * kMean * 0.95, 0.05 * kMean);
    EXPECT_EQ(*std::min_element(lengths.begin(), lengths.end()), 2);
    EXPECT_EQ(*std::max_element(lengths.begin(), lengths.end()), 2 * kMean);
}

TEST(RaggedLengths, DependOnSeedAndPositionAlone) {
    const Lengths few = ragged_lengths(10, 1000, 1, 7);
    const Lengths many = ragged_lengths(100, 1000, 1, 7);
    EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
    EXPECT_NE(few, ragged_lengths(10, 1000, 1, 8));
}

TEST(PickFromTrace, DifferentRequestsWithPartOfTheirOutput) {
    std::vector<TraceRequest> trace;
    for (int i = 0; i < 30; ++i) trace.push_back({i, 1000 * (i + 1), i == 4 ? 0 : 100});
    Lengths picked = pick_from_trace(trace, 30, 3);
    std::sort(picked.begin(), picked.end());
    for (int i = 0; i < 30; ++i) {
        EXPECT_GE(picked[i], 1000 * (i + 1) + (i == 4 ? 0 : 1));
        EXPECT_LE(picked[i], 1000 * (i + 1) + (i == 4 ? 0 : 100));
    }
    EXPECT_EQ(pick_from_trace(trace, 5, 3).size(), 5U);
    EXPECT_TRUE(pick_from_trace(trace, 0, 3).empty());
}

TEST(Suites, HaveTheShapesTheyName) {
    EXPECT_EQ(decode_suite("dense").value().size(), 16U);
    EXPECT_EQ(decode_suite("heads").value().size(), 21U);
    EXPECT_EQ(decode_suite("latency").value().size(), 12U);
    EXPECT_FALSE(decode_suite("other").ok());
    const std::vector<DecodeBenchCase> dense = decode_suite("dense").value();
    for (const DecodeBenchCase& shape : dense) {
        EXPECT_EQ(shape.b, 128);
        EXPECT_TRUE(shape.ragged);
    }
}

TEST(Sampling, Median) {
    EXPECT_EQ(median({3, 1, 2}), 2);
    EXPECT_EQ(median({5}), 5);
    EXPECT_EQ(median({4, 1, 3, 2}), 3);
}

}  // namespace
}  // namespace flashmla::bench
