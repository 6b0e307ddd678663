// The search for the smallest failing case, on failures made up here.
#include "cli/verify_case.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "cli/text.hpp"

namespace flashmla::cli {
namespace {

using reference::DecodeSpec;

DecodeSpec large_spec() {
    DecodeSpec spec = reference::random_spec(11, 1500, 64);
    spec.lengths = {700, 3, 1200, 64, 129};
    spec.s_q = 4;
    spec.h_kv = 2;
    spec.h_q = 6;
    spec.causal = true;
    spec.strided_q = true;
    return spec;
}

TEST(Shrink, FindsTheOneLengthThatMatters) {
    const auto fails = [](const DecodeSpec& spec) {
        return std::any_of(spec.lengths.begin(), spec.lengths.end(), [](std::int32_t length) { return length >= 130; });
    };
    const DecodeSpec smallest = shrink(large_spec(), fails, 1000);
    EXPECT_EQ(smallest.lengths, std::vector<std::int32_t>{130});
    EXPECT_EQ(smallest.s_q, 1);
    EXPECT_EQ(smallest.h_q, 1);
    EXPECT_EQ(smallest.h_kv, 1);
    EXPECT_EQ(smallest.page_size, 64);
    EXPECT_FALSE(smallest.causal);
    EXPECT_FALSE(smallest.strided_q);
}

TEST(Shrink, KeepsWhatTheFailureNeeds) {
    const auto fails = [](const DecodeSpec& spec) { return spec.causal && spec.s_q >= 2 && spec.h_q / spec.h_kv >= 3; };
    const DecodeSpec smallest = shrink(large_spec(), fails, 1000);
    EXPECT_TRUE(smallest.causal);
    EXPECT_EQ(smallest.s_q, 2);
    EXPECT_EQ(smallest.h_q, 3);
    EXPECT_EQ(smallest.lengths, std::vector<std::int32_t>{0});
}

TEST(Shrink, StopsAfterSoManyTries) {
    int calls = 0;
    const auto fails = [&calls](const DecodeSpec&) {
        ++calls;
        return true;
    };
    (void)shrink(large_spec(), fails, 5);
    EXPECT_EQ(calls, 5);
}

TEST(SpecJson, ComesBackAsItWas) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        const DecodeSpec spec = reference::random_spec(seed, 300, 32);
        EXPECT_EQ(spec_json(spec_from_json(spec_json(spec).dump())), spec_json(spec));
    }
}

TEST(Text, GroupsThousands) {
    EXPECT_EQ(grouped(std::int64_t{0}), "0");
    EXPECT_EQ(grouped(std::int64_t{999}), "999");
    EXPECT_EQ(grouped(std::int64_t{1000}), "1,000");
    EXPECT_EQ(grouped(std::int64_t{-1234567}), "-1,234,567");
    EXPECT_EQ(grouped(4096.0, 1), "4,096.0");
    EXPECT_EQ(grouped(72.0, 0), "72");
    EXPECT_EQ(bytes_text(999), "999 B");
    EXPECT_EQ(bytes_text(25056000), "25.1 MB");
    EXPECT_EQ(time_text(0.0123), "12.3 us");
    EXPECT_EQ(time_text(1500), "1.5 s");
}

}  // namespace
}  // namespace flashmla::cli
