// The picture of the line in docs/scheduling.md.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "flashmla/flashmla.hpp"

namespace flashmla::test {
namespace {

TEST(DocumentedPicture, IsWhatThePlannerDoes) {
    const std::vector<std::int32_t> lengths{12 * 64, 3 * 64, 0, 7 * 64};
    PlanOptions options;
    options.num_workers = 4;
    const DecodePlan plan =
        plan_decode({.b = 4, .h_q = 128, .max_pages = 12}, named_device("h200").value(), options).value();
    const ScheduleExplanation out = explain_schedule(plan, lengths).value();
    std::vector<std::int64_t> costs;
    std::vector<std::vector<int>> pieces;
    for (const WorkerSchedule& worker : out.workers) {
        costs.push_back(worker.cost);
        for (const SchedulePiece& piece : worker.pieces) {
            pieces.push_back({piece.request, piece.key_tile_begin, piece.key_tile_end});
        }
    }
    EXPECT_EQ(costs, (std::vector<std::int64_t>{9, 7, 7, 9}));
    EXPECT_EQ(pieces, (std::vector<std::vector<int>>{{0, 0, 7}, {0, 7, 12}, {1, 0, 3}, {2, 0, 0}, {3, 0, 7}}));
    EXPECT_EQ(out.cost_bound, 9);
}

}  // namespace
}  // namespace flashmla::test
