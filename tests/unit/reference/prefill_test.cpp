// The oracle of dense prefill against closed forms.
#include "reference/prefill.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/prefill_case.hpp"

namespace flashmla::reference {
namespace {

using testing_support::PrefillCase;

// Two requests, of 3 query and 2 key tokens and of 1 and 4; d_qk 2, d_v 1; logits are the second key value.
PrefillCase tiny(bool causal) {
    PrefillCase c(
        {.lengths = {{3, 2}, {1, 4}}, .h_q = 4, .h_kv = 2, .d_qk = 2, .d_v = 1, .causal = causal, .scale = 1});
    for (std::int64_t i = 0; i < c.q().elements(); ++i) c.q().set(i, i % 2);
    for (std::int64_t i = 0; i < c.k().elements(); ++i) c.k().set(i, i % 2 == 0 ? 100 : 0);
    for (std::int64_t i = 0; i < c.v().elements(); ++i) c.v().set(i, static_cast<double>(i));
    return c;
}

TEST(PrefillOracle, EqualLogitsGiveMeansOverTheVisibleKeysOfTheRequest) {
    const PrefillCase c = tiny(false);
    // Values are 2 * token + kv head; heads 0 and 1 read KV head 0.
    EXPECT_NEAR(prefill_row(c.args(), {0, 0, 1}).out[0], 1, 1e-15);
    EXPECT_NEAR(prefill_row(c.args(), {0, 2, 2}).out[0], 2, 1e-15);
    EXPECT_NEAR(prefill_row(c.args(), {1, 0, 3}).out[0], 8, 1e-15);
    EXPECT_NEAR(prefill_row(c.args(), {1, 0, 0}).lse, std::log(4.0), 1e-15);
}

TEST(PrefillOracle, CausalIsAlignedAtTheEnd) {
    const PrefillCase c = tiny(true);
    const RowResult none = prefill_row(c.args(), {0, 0, 0});  // 3 queries, 2 keys: the first sees none
    EXPECT_EQ(none.out[0], 0);
    EXPECT_EQ(none.lse, std::numeric_limits<double>::infinity());
    EXPECT_EQ(prefill_row(c.args(), {0, 1, 0}).out[0], 0);
    EXPECT_EQ(prefill_row(c.args(), {0, 1, 2}).out[0], 1);
    EXPECT_NEAR(prefill_row(c.args(), {0, 2, 0}).out[0], 1, 1e-15);
    EXPECT_NEAR(prefill_row(c.args(), {1, 0, 0}).out[0], 7, 1e-15);
}

TEST(PrefillOracle, LogitsAreScaledProducts) {
    PrefillCase c = tiny(false);
    c.k().set(1, 1.5);  // key 0 of KV head 0
    const RowResult row = prefill_row(c.args(), {0, 0, 0});
    EXPECT_NEAR(row.lse, std::log(1 + std::exp(1.5)), 1e-15);
    EXPECT_NEAR(row.out[0], 2 / (1 + std::exp(1.5)), 1e-15);
    DensePrefillArgs args = c.args();
    args.has_softmax_scale = false;
    EXPECT_NEAR(prefill_row(args, {0, 0, 0}).lse, std::log(1 + std::exp(1.5 / std::sqrt(2.0))), 1e-15);
}

}  // namespace
}  // namespace flashmla::reference
