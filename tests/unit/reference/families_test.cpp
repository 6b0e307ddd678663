#include "support/decode_families.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "support/check_decode.hpp"

namespace flashmla::testing_support {
namespace {

Family everything() {
    Family all = all_small();
    const Family rest = large();
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
}

TEST(Families, NamesAndSeedsAreUniqueAndShapesLegal) {
    std::set<std::string> names;
    std::set<std::uint64_t> seeds;
    for (const reference::DecodeSpec& spec : everything()) {
        EXPECT_TRUE(names.insert(test_name({spec, 0})).second) << describe(spec);
        EXPECT_TRUE(seeds.insert(spec.seed).second) << describe(spec);
        EXPECT_EQ(spec.h_q % spec.h_kv, 0) << describe(spec);
        EXPECT_LE(spec.d_v, spec.d_qk) << describe(spec);
        EXPECT_TRUE(std::all_of(spec.lengths.begin(), spec.lengths.end(), [](int n) { return n >= 0; }));
    }
}

TEST(Families, ARefusalIsAFailureWithItsMessage) {
    const auto result = matches_oracle(
        layouts().front(), [](const DecodeArgs&) { return invalid_argument("q: no"); }, reference::fp32_model());
    EXPECT_FALSE(result);
    EXPECT_NE(std::string(result.message()).find("refused: q: no"), std::string::npos);
}

TEST(Families, DoingNothingIsAFailure) {
    EXPECT_FALSE(matches_oracle(
        layouts().front(), [](const DecodeArgs&) { return Status{}; }, reference::fp32_model()));
}

}  // namespace
}  // namespace flashmla::testing_support
