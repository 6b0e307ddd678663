// What the command line shows of a plan: the schedule worker by worker, and the predicted bytes, FLOPs and times.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "flashmla/flashmla.hpp"

namespace flashmla::test {
namespace {

DecodePlan h200_plan(std::int64_t b, std::int64_t max_pages, bool batch_invariant = false, int workers = 0) {
    PlanOptions options;
    options.batch_invariant = batch_invariant;
    options.num_workers = workers;
    return plan_decode({.b = b, .h_q = 128, .max_pages = max_pages}, named_device("h200").value(), options).value();
}

TEST(ExplainSchedule, OneLongRequestIsSharedEvenly) {
    const std::vector<std::int32_t> lengths{64 * 64 * 3};
    const ScheduleExplanation out = explain_schedule(h200_plan(1, 64 * 3), lengths).value();
    ASSERT_EQ(out.workers.size(), 66u);
    EXPECT_TRUE(out.workers[64].pieces.empty());
    EXPECT_TRUE(out.workers[65].pieces.empty());
    for (std::size_t w = 0; w < 64; ++w) {
        ASSERT_EQ(out.workers[w].pieces.size(), 1u);
        const SchedulePiece& piece = out.workers[w].pieces[0];
        EXPECT_EQ(piece.key_tile_begin, static_cast<int>(3 * w));
        EXPECT_EQ(piece.key_tile_end, static_cast<int>(3 * w + 3));
        EXPECT_EQ(piece.row_tiles, 2);
        EXPECT_TRUE(piece.partial);
        EXPECT_EQ(out.workers[w].cost, 5);
    }
    EXPECT_EQ(out.max_cost, 5);
    EXPECT_EQ(out.partial_pieces, 64);
    EXPECT_LE(out.max_cost, out.cost_bound);
}

TEST(ExplainSchedule, RaggedBatchByHand) {
    // Units of 2 + 2, 2 + 0 and 2 + 5 places make a line of 13; two workers share ceil((13 - 2) / 2) = 6 each, so the
    // second starts at place 8: two places into the third unit, at its first key tile.
    const std::vector<std::int32_t> lengths{100, 0, 300};
    const ScheduleExplanation out = explain_schedule(h200_plan(3, 8, false, 2), lengths).value();
    ASSERT_EQ(out.workers.size(), 2u);
    ASSERT_EQ(out.workers[0].pieces.size(), 2u);
    EXPECT_EQ(out.workers[0].pieces[0].key_tile_end, 2);
    EXPECT_EQ(out.workers[0].pieces[1].request, 1);
    EXPECT_EQ(out.workers[0].pieces[1].key_tile_end, 0);
    ASSERT_EQ(out.workers[1].pieces.size(), 1u);
    EXPECT_EQ(out.workers[1].pieces[0].request, 2);
    EXPECT_EQ(out.workers[1].pieces[0].key_tile_end, 5);
    EXPECT_FALSE(out.workers[1].pieces[0].partial);
    EXPECT_EQ(out.max_cost, 7);
    EXPECT_DOUBLE_EQ(out.mean_cost, 6.5);
    EXPECT_EQ(out.partial_pieces, 0);
}

TEST(ExplainSchedule, BatchInvariantModeCutsAtChunks) {
    const std::vector<std::int32_t> lengths{64 * 70};
    const ScheduleExplanation out = explain_schedule(h200_plan(1, 70, true), lengths).value();
    std::vector<int> starts;
    for (const WorkerSchedule& worker : out.workers) {
        for (const SchedulePiece& piece : worker.pieces) starts.push_back(piece.key_tile_begin);
    }
    EXPECT_EQ(starts, (std::vector<int>{0, 32, 64}));
    EXPECT_EQ(out.chunk_key_tiles, 32);
    EXPECT_EQ(out.partial_pieces, 3);
}

TEST(ExplainSchedule, RefusesLengthsThatDoNotFitThePlan) {
    const DecodePlan plan = h200_plan(2, 4);
    const struct {
        std::vector<std::int32_t> lengths;
        const char* message;
    } cases[] = {{{1}, "lengths: got 1, wanted b = 2"},
                 {{1, -1}, "lengths: got -1 for request 1, wanted 0 to 256"},
                 {{257, 1}, "lengths: got 257 for request 0"}};
    for (const auto& c : cases) {
        EXPECT_NE(explain_schedule(plan, c.lengths).status().message().find(c.message), std::string::npos);
        EXPECT_EQ(predict_decode(plan, c.lengths).status().message(),
                  explain_schedule(plan, c.lengths).status().message());
    }
}

TEST(PredictDecode, CountsBytesAndFlops) {
    const std::vector<std::int32_t> lengths{1000, 3000};
    const Prediction out = predict_decode(h200_plan(2, 64, false, 1), lengths).value();
    EXPECT_EQ(out.kv_bytes, 4000.0 * 576 * 2);
    EXPECT_EQ(out.q_bytes, 2.0 * 128 * 576 * 2);
    EXPECT_EQ(out.out_bytes, 2.0 * 128 * (512 * 2 + 4));
    EXPECT_EQ(out.flops, 2.0 * 128 * 4000 * (576 + 512));
    EXPECT_EQ(out.partial_bytes, 0);  // one worker splits nothing
    EXPECT_DOUBLE_EQ(out.memory_seconds, (out.kv_bytes + out.q_bytes + out.out_bytes) / 4200e9);
    EXPECT_DOUBLE_EQ(out.compute_seconds, out.flops / 740e12);
    EXPECT_EQ(out.roofline_seconds, std::max(out.memory_seconds, out.compute_seconds));
    EXPECT_EQ(out.memory_bound, out.memory_seconds >= out.compute_seconds);
}

TEST(PredictDecode, PartialResultsAreWrittenAndRead) {
    const std::vector<std::int32_t> lengths{64 * 64};
    const Prediction out = predict_decode(h200_plan(1, 64), lengths).value();
    EXPECT_EQ(out.partial_bytes, 64.0 * 128 * (512 * 2 + 16) * 2);
}

}  // namespace
}  // namespace flashmla::test
