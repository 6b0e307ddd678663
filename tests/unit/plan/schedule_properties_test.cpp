// Properties of the split schedule over seeded random batches, against the line model.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "plan/schedule_table.hpp"
#include "unit/plan/line_model.hpp"

namespace flashmla::test {
namespace {

using plan::Cut;
using plan::Piece;

constexpr int kCases = 12'000;

int max_chunks_of(const ScheduleCase& c) {
    int longest = 0;
    for (int len : c.lengths) longest = std::max(longest, len);
    return c.chunk_tiles > 0 ? core::ceil_div(plan::key_tiles(longest), c.chunk_tiles) : 0;
}

bool same(const Cut& a, const Cut& b) { return !plan::before(a, b) && !plan::before(b, a); }

// Walks all pieces in worker order; the first property that fails, or "".
std::string check(const ScheduleCase& c) {
    const plan::WorkShape w = c.shape();
    const LineModel model(c);
    const std::vector<Cut> cuts = plan::worker_cuts(w, c.lengths, c.workers);
    if (w.units() != model.units()) return "units of a request";
    if (plan::line_length(w, c.lengths) != model.length()) return "length of the line";
    if (cuts.size() != static_cast<std::size_t>(c.workers) + 1) return "size of the table";
    for (int worker = 0; worker <= c.workers; ++worker) {
        if (!same(cuts[static_cast<std::size_t>(worker)], model.worker_cut(worker))) {
            return "cut of worker " + std::to_string(worker);
        }
    }

    const int max_chunks = max_chunks_of(c);
    const std::int64_t bound = model.bound();
    // The planner's figure holds for either kind of balanced schedule, whichever the lengths lead to.
    if (plan::cost_bound(w, model.length(), c.workers) < bound) return "the planner's bound";
    const std::int64_t whole_units = model.whole_units_each();
    std::vector<char> taken(static_cast<std::size_t>(2 * c.workers), 0);
    std::int64_t last_chunk_slot = -1;
    std::string failure;
    Cut next{0, 0, 0};  // where the next piece must start
    for (int worker = 0; worker < c.workers && failure.empty(); ++worker) {
        std::int64_t cost = 0;
        std::int64_t units_here = 0;
        plan::for_each_piece(w, c.lengths, cuts, worker, max_chunks, [&](const Piece& piece) {
            if (!failure.empty()) return;
            const int tiles = model.tiles(piece.request, piece.unit);
            const bool whole = piece.tile_begin == 0 && piece.tile_end == tiles;
            if (!same({piece.request, piece.unit, piece.tile_begin}, next)) failure = "a gap or an overlap";
            if (piece.tile_end > tiles || (piece.tile_end <= piece.tile_begin && tiles > 0))
                failure = "range of a piece";
            if (whole != (piece.slot < 0)) failure = "slot although whole, or none although partial";
            if (!whole && whole_units > 0) failure = "a split where units stay whole";
            if (!whole && c.chunk_tiles == 0) {
                const auto slot = static_cast<std::size_t>(piece.slot);
                if (slot >= taken.size() || taken[slot]++) failure = "slot out of range or used twice";
            }
            if (c.chunk_tiles > 0) {
                if (piece.tile_begin % c.chunk_tiles != 0) failure = "chunk does not start at a multiple";
                if (piece.tile_end != std::min(piece.tile_begin + c.chunk_tiles, tiles)) failure = "size of a chunk";
                const std::int64_t slots = std::int64_t{w.b} * w.units() * max_chunks;
                if (!whole && (piece.slot <= last_chunk_slot || piece.slot >= slots)) failure = "chunk slot";
                if (!whole) last_chunk_slot = piece.slot;
            }
            ++units_here;
            cost += c.visit_cost + piece.tile_end - piece.tile_begin;
            next = piece.tile_end < tiles           ? Cut{piece.request, piece.unit, piece.tile_end}
                   : piece.unit + 1 < model.units() ? Cut{piece.request, piece.unit + 1, 0}
                                                    : Cut{piece.request + 1, 0, 0};
        });
        if (whole_units > 0 && units_here > whole_units) failure = "too many whole units";
        if (cost > bound) failure = "cost " + std::to_string(cost) + " over the bound " + std::to_string(bound);
    }
    if (failure.empty() && !same(next, {w.b, 0, 0})) failure = "not everything is covered";
    return failure;
}

TEST(ScheduleProperties, HoldForSeededRandomBatches) {
    int longest_batch = 0;
    int longest_request = 0;
    int whole = 0;
    int several_whole = 0;
    int shared = 0;
    for (int i = 0; i < kCases; ++i) {
        const ScheduleCase c = CaseMaker(static_cast<std::uint64_t>(i) + 1).make();
        const std::string failure = check(c);
        ASSERT_EQ(failure, "") << "seed " << i + 1 << ": b " << c.lengths.size() << ", heads " << c.heads << ", s_q "
                               << c.s_q << ", h_kv " << c.h_kv << ", row tiles a unit " << c.row_tiles_per_unit
                               << ", causal " << c.causal << ", chunk " << c.chunk_tiles << ", workers " << c.workers;
        longest_batch = std::max(longest_batch, static_cast<int>(c.lengths.size()));
        for (int len : c.lengths) longest_request = std::max(longest_request, len);
        const std::int64_t each = LineModel(c).whole_units_each();
        whole += each > 0;
        several_whole += each > 1;
        shared += each == 0 && c.chunk_tiles == 0;
    }
    // The generator reaches the sizes it is meant to reach.
    EXPECT_GT(longest_batch, 50'000);
    EXPECT_GT(longest_request, 1'900'000);
    EXPECT_GT(whole, 1'000);
    EXPECT_GT(several_whole, 300);
    EXPECT_GT(shared, 3'000);
}

TEST(ScheduleProperties, HoldAtTheLargestBatch) {
    for (const int chunk : {0, 32}) {
        ScheduleCase c{.heads = 128, .row_tiles_per_unit = 2, .chunk_tiles = chunk, .workers = 66, .lengths = {}};
        CaseMaker maker(7);
        for (int i = 0; i < 100'000; ++i) c.lengths.push_back(maker.between(0, 2'000'000));
        EXPECT_EQ(check(c), "");
    }
}

TEST(ScheduleProperties, HoldAtTheLongestLengths) {
    constexpr int kLongest = 2'147'483'647;
    for (const bool causal : {false, true}) {
        for (const int chunk : {0, 32}) {
            ScheduleCase c{.heads = 16,
                           .s_q = chunk > 0 ? 5 : 128,
                           .row_tiles_per_unit = 2,
                           .causal = causal,
                           .chunk_tiles = chunk,
                           .workers = 132,
                           .lengths = {kLongest, kLongest - 63, 0, kLongest - 64, kLongest - 1}};
            EXPECT_EQ(check(c), "");
        }
    }
}

TEST(ScheduleProperties, HoldWithMoreWorkersThanWork) {
    for (const int b : {0, 1, 2, 5}) {
        for (const int len : {0, 1, 64, 65, 640}) {
            ScheduleCase c{.heads = 128, .row_tiles_per_unit = 2, .workers = 1000, .lengths = std::vector<int>(b, len)};
            EXPECT_EQ(check(c), "") << b << " requests of " << len;
        }
    }
}

// Pieces of one request, wherever it stands.
std::vector<std::vector<int>> splits_of(const ScheduleCase& c, int request) {
    const std::vector<Cut> cuts = plan::worker_cuts(c.shape(), c.lengths, c.workers);
    std::vector<std::vector<int>> splits;
    for (int worker = 0; worker < c.workers; ++worker) {
        plan::for_each_piece(c.shape(), c.lengths, cuts, worker, max_chunks_of(c), [&](const Piece& piece) {
            if (piece.request == request) splits.push_back({piece.unit, piece.tile_begin, piece.tile_end});
        });
    }
    return splits;
}

TEST(BatchInvariantSchedule, SplitsOfARequestDependOnThatRequestAlone) {
    for (int i = 0; i < 500; ++i) {
        CaseMaker maker(static_cast<std::uint64_t>(i) + 1);
        ScheduleCase alone{.heads = maker.pick({1, 16, 64, 128}),
                           .s_q = maker.pick({1, 2, 5}),
                           .row_tiles_per_unit = 2,
                           .causal = maker.below(2) == 0,
                           .chunk_tiles = plan::kInvariantChunk,
                           .workers = 66,
                           .lengths = {maker.between(0, 100'000)}};
        const auto wanted = splits_of(alone, 0);
        for (const int b : {2, 8, 64, 321}) {
            ScheduleCase batch = alone;
            batch.workers = maker.between(1, 132);
            batch.lengths = maker.lengths(b);
            const int place = maker.below(b);
            batch.lengths[static_cast<std::size_t>(place)] = alone.lengths[0];
            ASSERT_EQ(splits_of(batch, place), wanted) << "seed " << i + 1 << ", b " << b;
        }
    }
}

}  // namespace
}  // namespace flashmla::test
