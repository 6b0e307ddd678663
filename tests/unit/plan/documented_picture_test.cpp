// The pictures in docs/scheduling.md.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "flashmla/flashmla.hpp"

namespace flashmla::test {
namespace {

struct Picture {
    std::vector<std::int64_t> costs;
    std::vector<std::vector<int>> pieces;  // request, first and end key tile
    std::int64_t cost_bound = 0;
};

Picture picture(const std::vector<int>& key_tiles) {
    std::vector<std::int32_t> lengths;
    for (int tiles : key_tiles) lengths.push_back(64 * tiles);
    PlanOptions options;
    options.num_workers = 4;
    const DecodePlan plan =
        plan_decode({.b = 4, .h_q = 128, .max_pages = 48}, named_device("h200").value(), options).value();
    const ScheduleExplanation out = explain_schedule(plan, lengths).value();
    Picture seen;
    seen.cost_bound = out.cost_bound;
    for (const WorkerSchedule& worker : out.workers) {
        seen.costs.push_back(worker.cost);
        for (const SchedulePiece& piece : worker.pieces) {
            seen.pieces.push_back({piece.request, piece.key_tile_begin, piece.key_tile_end});
        }
    }
    return seen;
}

TEST(DocumentedPicture, LineIsCutIntoShares) {
    const Picture seen = picture({48, 12, 0, 28});
    EXPECT_EQ(seen.costs, (std::vector<std::int64_t>{26, 26, 24, 24}));
    EXPECT_EQ(seen.pieces,
              (std::vector<std::vector<int>>{{0, 0, 24}, {0, 24, 48}, {1, 0, 12}, {2, 0, 0}, {3, 0, 6}, {3, 6, 28}}));
    EXPECT_EQ(seen.cost_bound, 24 + 14);
}

TEST(DocumentedPicture, ShorterUnitsStayWhole) {
    const Picture seen = picture({12, 3, 0, 7});
    EXPECT_EQ(seen.costs, (std::vector<std::int64_t>{14, 5, 2, 9}));
    EXPECT_EQ(seen.pieces, (std::vector<std::vector<int>>{{0, 0, 12}, {1, 0, 3}, {2, 0, 0}, {3, 0, 7}}));
    EXPECT_EQ(seen.cost_bound, 7 + 14);
}

}  // namespace
}  // namespace flashmla::test
