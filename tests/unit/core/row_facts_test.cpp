// Who sees which keys, how long a request is, and how rows are packed into tiles.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <utility>

#include "core/causal.hpp"
#include "core/problem.hpp"
#include "core/row_tiling.hpp"

namespace flashmla::core {
namespace {

TEST(Causal, TheLastTokenSeesEveryKeyAndEachBeforeItOneLess) {
    EXPECT_EQ(visible_keys(10, 3, 2, true), 10);
    EXPECT_EQ(visible_keys(10, 3, 1, true), 9);
    EXPECT_EQ(visible_keys(10, 3, 0, true), 8);
    EXPECT_EQ(visible_keys(10, 3, 0, false), 10);
}

TEST(Causal, TokensBeforeTheFirstKeySeeNothing) {
    EXPECT_EQ(visible_keys(1, 4, 2, true), 0);
    EXPECT_EQ(visible_keys(1, 4, 3, true), 1);
    EXPECT_EQ(visible_keys(0, 2, 0, true), 0);
    EXPECT_EQ(visible_keys(0, 2, 1, true), 0);
}

TEST(Causal, TheFirstSeeingTokenIsTheFirstThatSeesTheKey) {
    for (const bool causal : {false, true}) {
        for (int len = 1; len < 6; ++len) {
            for (int s_q = 0; s_q < 8; ++s_q) {
                for (int key = 0; key < len; ++key) {
                    int first = 0;
                    while (first < s_q && visible_keys(len, s_q, first, causal) <= key) ++first;
                    EXPECT_EQ(min_of(first_seeing_token(len, s_q, key, causal), s_q), first) << len << s_q << key;
                }
            }
        }
    }
}

TEST(RequestLength, ComesFromEitherFormAndIsHeldToTheCapacity) {
    const std::int32_t lengths[] = {5, -3, 100};
    EXPECT_EQ(request_length(lengths, false, 64, 0), 5);
    EXPECT_EQ(request_length(lengths, false, 64, 1), 0);
    EXPECT_EQ(request_length(lengths, false, 64, 2), 64);
    const std::int32_t cumulative[] = {2, 7, 7, 4, 500};
    EXPECT_EQ(request_length(cumulative, true, 64, 0), 5);
    EXPECT_EQ(request_length(cumulative, true, 64, 1), 0);
    EXPECT_EQ(request_length(cumulative, true, 64, 2), 0);
    EXPECT_EQ(request_length(cumulative, true, 64, 3), 64);
}

TEST(RowTiling, CoversEveryTokenAndHeadOnceWithoutMixingParts) {
    for (int tile_rows : {16, 64}) {
        for (int heads = 1; heads <= 130; ++heads) {
            for (int s_q : {1, 2, 3, 5, 64, 127}) {
                const RowTiling tiling = make_row_tiling(heads, s_q, tile_rows);
                std::set<std::pair<int, int>> seen;
                for (int tile = 0; tile < tiling.tiles; ++tile) {
                    ASSERT_LE(tiling.rows(tile), tile_rows);
                    for (int token = tiling.first_token(tile); token < tiling.end_token(tile); ++token) {
                        const int first = tiling.first_head(tile);
                        for (int head = first; head < min_of(first + tiling.tile_heads, heads); ++head) {
                            ASSERT_TRUE(seen.insert({token, head}).second) << heads << ", " << s_q << ", " << tile;
                        }
                    }
                }
                ASSERT_EQ(seen.size(), static_cast<std::size_t>(heads) * s_q) << heads << ", " << s_q;
            }
        }
    }
}

}  // namespace
}  // namespace flashmla::core
