// The balanced schedule where no unit is split: when it is chosen, and where workers start.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "plan/schedule_table.hpp"
#include "unit/plan/line_model.hpp"

namespace flashmla::test {
namespace {

ScheduleCase equal_requests(int b, int key_tiles, int workers) {
    return {.heads = 128, .row_tiles_per_unit = 2, .workers = workers, .lengths = std::vector<int>(b, 64 * key_tiles)};
}

int units_per_worker(const ScheduleCase& c) {
    int longest = 0;
    for (int len : c.lengths) longest = std::max(longest, plan::key_tiles(len));
    const plan::WorkShape w = c.shape();
    const plan::FixedShares shares = plan::fixed_shares(w, c.workers);
    const bool whole = plan::arrangement(w, shares, plan::line_length(w, c.lengths), longest, c.workers) ==
                       plan::Arrangement::kWholeUnits;
    return whole ? static_cast<int>(shares.units_each) : 0;
}

// Whole units of a worker, from the cuts. -1 when it starts or ends inside a unit.
std::vector<int> units_of_workers(const ScheduleCase& c) {
    const std::vector<plan::Cut> cuts = plan::worker_cuts(c.shape(), c.lengths, c.workers);
    std::vector<int> counts;
    for (int worker = 0; worker < c.workers; ++worker) {
        int count = 0;
        plan::for_each_piece(c.shape(), c.lengths, cuts, worker, 0, [&](const plan::Piece& piece) {
            if (piece.slot >= 0) count = -1;
            if (count >= 0) ++count;
        });
        counts.push_back(count);
    }
    return counts;
}

TEST(WholeUnits, OneOrSeveralEqualRequestsAWorker) {
    EXPECT_EQ(units_of_workers(equal_requests(3, 100, 3)), (std::vector<int>{1, 1, 1}));
    EXPECT_EQ(units_of_workers(equal_requests(12, 100, 3)), (std::vector<int>{4, 4, 4}));
}

TEST(WholeUnits, TheLastWorkersHaveLessOrNothing) {
    // 5 units of 3 places: two workers idle, since 2 + 1 key tiles for each unit are no reason to split.
    EXPECT_EQ(units_of_workers(equal_requests(5, 1, 7)), (std::vector<int>{1, 1, 1, 1, 1, 0, 0}));
    EXPECT_EQ(units_of_workers(equal_requests(7, 1, 3)), (std::vector<int>{3, 3, 1}));
    EXPECT_EQ(units_of_workers(equal_requests(9, 1, 4)), (std::vector<int>{3, 3, 3, 0}));
}

TEST(WholeUnits, ChosenUpToTheGainAndNotAbove) {
    // One unit of n key tiles: whole it costs n + 2, on two workers of its own ceil(n / 2) + 2 and a merge.
    static_assert(plan::kOwnMerge == 7);
    for (int n = 0; n <= 40; ++n) {
        EXPECT_EQ(units_per_worker(equal_requests(1, n, 2)), n <= (n + 1) / 2 + 7 ? 1 : 0) << n << " key tiles";
    }
    EXPECT_EQ(units_per_worker(equal_requests(1, 15, 2)), 1);
    EXPECT_EQ(units_per_worker(equal_requests(1, 16, 2)), 0);
    // Two units on three workers: none has a worker more, a share is ceil((2 * (n + 2) - 2) / 3).
    static_assert(plan::kBalancedMerge == 14);
    for (int n = 0; n <= 80; ++n) {
        const int share = (2 * (n + 2) - 2 + 2) / 3;
        EXPECT_EQ(units_per_worker(equal_requests(2, n, 3)), n + 2 <= share + 14 ? 1 : 0) << n << " key tiles";
    }
}

TEST(WholeUnits, TheLongestUnitDecides) {
    ScheduleCase c = equal_requests(8, 40, 8);
    EXPECT_EQ(units_per_worker(c), 1);
    c.lengths[3] += 13 * 64;
    EXPECT_EQ(units_per_worker(c), 1);
    c.lengths[3] += 4 * 64;
    EXPECT_EQ(units_per_worker(c), 0);
}

TEST(WholeUnits, NeverInBatchInvariantMode) {
    for (int i = 0; i < 2'000; ++i) {
        ScheduleCase c = CaseMaker(static_cast<std::uint64_t>(i) + 1).make();
        c.chunk_tiles = 32;
        EXPECT_EQ(units_per_worker(c), 0) << "seed " << i + 1;
    }
}

TEST(WholeUnits, NoRequests) {
    const ScheduleCase c = equal_requests(0, 0, 66);
    EXPECT_EQ(units_per_worker(c), 0);
    for (int worker = 0; worker <= 66; ++worker) {
        const plan::Cut cut = plan::whole_unit_cut(c.shape(), {.units_each = 1, .workers_each = {}}, worker);
        EXPECT_EQ(cut.request, 0);
        EXPECT_EQ(cut.unit, 0);
        EXPECT_EQ(cut.tile, 0);
    }
    EXPECT_EQ(units_of_workers(c), std::vector<int>(66, 0));
}

TEST(WholeUnits, CutsCountUnitsThroughTheBatch) {
    for (const int b : {1, 2, 131, 132, 133, 100'000}) {
        for (const int h_kv : {1, 3}) {
            for (const int workers : {1, 2, 66, 1000}) {
                ScheduleCase c = equal_requests(b, 1, workers);
                c.h_kv = h_kv;
                c.s_q = 3;  // 6 row tiles: three units a KV head
                const plan::WorkShape w = c.shape();
                ASSERT_EQ(w.units(), 3 * h_kv);
                const std::int64_t units = std::int64_t{b} * w.units();
                const std::int64_t each = (units + workers - 1) / workers;
                for (int worker = 0; worker <= workers; ++worker) {
                    const plan::Cut cut = plan::whole_unit_cut(w, {.units_each = each, .workers_each = {}}, worker);
                    ASSERT_EQ(std::int64_t{cut.request} * w.units() + cut.unit, std::min(units, each * worker));
                    ASSERT_LT(cut.unit, w.units());
                    ASSERT_EQ(cut.tile, 0);
                }
            }
        }
    }
}

TEST(WholeUnits, HoldForTheLargestBatch) {
    // A share of 400,000 places is 6,061; 1,516 units of 4 places are 3 more, and leave the last worker 1,460 units.
    std::vector<int> wanted(65, 1'516);
    wanted.push_back(1'460);
    EXPECT_EQ(units_of_workers(equal_requests(100'000, 2, 66)), wanted);
}

}  // namespace
}  // namespace flashmla::test
