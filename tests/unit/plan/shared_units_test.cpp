// Who shares a unit in the balanced schedule. Workers merge the units they share among themselves, each finding the
// others from its own cut alone: here that is held against all pieces of all workers.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/schedule_table.hpp"
#include "unit/plan/line_model.hpp"

namespace flashmla::test {
namespace {

using Unit = std::pair<int, int>;  // request, unit

struct Part {
    int worker = 0;
    std::int64_t slot = 0;
};

// The parts of every split unit, in the order of their key tiles.
std::map<Unit, std::vector<Part>> split_units(const ScheduleCase& c, const std::vector<plan::Cut>& cuts) {
    std::map<Unit, std::vector<Part>> parts;
    for (int worker = 0; worker < c.workers; ++worker) {
        plan::for_each_piece(c.shape(), c.lengths, cuts, worker, 0, [&](const plan::Piece& piece) {
            if (piece.slot >= 0) parts[{piece.request, piece.unit}].push_back({worker, piece.slot});
        });
    }
    return parts;
}

// Pieces of a unit with workers of its own.
int parts_of(const plan::FixedShares& shares, int tiles) {
    return core::ceil_div(std::max(1, tiles), plan::own_piece_tiles(shares, tiles));
}

// Whether what a worker finds of its own unit alone is what its cuts say.
bool only_piece_is(const ScheduleCase& c, const std::vector<plan::Cut>& cuts, int worker, const plan::OwnUnit& own) {
    const plan::WorkShape w = c.shape();
    const int len = own.request < w.b ? c.lengths[static_cast<std::size_t>(own.request)] : 0;
    const int tiles = plan::unit_key_tiles(w, len, own.unit);
    const int piece_tiles = plan::own_piece_tiles(plan::fixed_shares(w, c.workers), tiles);
    const plan::Piece found = plan::own_piece(w, own, tiles, piece_tiles, worker);
    int pieces = 0;
    bool same = true;
    plan::for_each_piece(w, c.lengths, cuts, worker, 0, [&](const plan::Piece& piece) {
        ++pieces;
        same = same && piece.request == found.request && piece.unit == found.unit && piece.slot == found.slot &&
               piece.tile_begin == found.tile_begin && piece.tile_end == found.tile_end;
    });
    return same && pieces == (found.request >= 0 ? 1 : 0);
}

// The first property that fails, or "". `shared` counts units of two parts and of more.
std::string check(const ScheduleCase& c, int (&shared)[2]) {
    const plan::WorkShape w = c.shape();
    const LineModel model(c);
    const std::vector<plan::Cut> cuts = plan::worker_cuts(w, c.lengths, c.workers);
    const auto units = split_units(c, cuts);
    if (!units.empty() && model.whole_units_each() > 0) return "a split where units stay whole";

    const plan::FixedShares shares = plan::fixed_shares(w, c.workers);
    const bool own = model.own_workers_each() > 0;
    if (own && shares.workers_each.value != model.own_workers_each()) return "workers of a unit";
    for (const auto& [unit, parts] : units) {
        const auto [request, index] = unit;
        const std::string name = "request " + std::to_string(request) + " unit " + std::to_string(index) + ": ";
        const plan::UnitWorkers found =
            own ? plan::UnitWorkers{parts[0].worker - plan::own_unit(w, shares, parts[0].worker).place,
                                    parts_of(shares, model.tiles(request, index))}
                : plan::workers_of_unit(model.share(), model.start(request, index), model.tiles(request, index),
                                        c.workers);
        if (found.first != parts[0].worker) return name + "first worker";
        if (found.count != static_cast<int>(parts.size()) || found.count < 2) return name + "number of workers";
        if (parts[0].slot != plan::left_slot(found.first)) return name + "slot of the first part";
        for (int i = 1; i < found.count; ++i) {
            const Part& part = parts[static_cast<std::size_t>(i)];
            if (part.worker != found.first + i) return name + "workers are not neighbors";
            if (part.slot != plan::entered_slot(part.worker)) return name + "slot of a later part";
        }
        ++shared[found.count > 2];
    }

    // Where units have workers of their own, a worker knows its unit. Otherwise it learns of the unit at its first cut
    // and of the one at its last cut; the latter is a second one only if the worker is the first of those that share
    // it.
    std::map<Unit, std::set<int>> sharers;
    for (int worker = 0; own && worker < c.workers; ++worker) {
        const plan::OwnUnit mine = plan::own_unit(w, shares, worker);
        if (!only_piece_is(c, cuts, worker, mine)) return "the piece of worker " + std::to_string(worker);
        if (mine.request >= w.b) continue;
        const int pieces = parts_of(shares, model.tiles(mine.request, mine.unit));
        if (mine.place < pieces && pieces > 1) sharers[{mine.request, mine.unit}].insert(worker);
    }
    for (int worker = 0; !own && worker < c.workers; ++worker) {
        for (int side = 0; side < 2; ++side) {
            const plan::Cut& cut = cuts[static_cast<std::size_t>(worker + side)];
            if (cut.tile == 0) continue;
            const std::int64_t position = c.visit_cost + model.share() * (worker + side);
            const std::int64_t start = position - c.visit_cost - cut.tile;
            if (start != model.start(cut.request, cut.unit))
                return "start of a unit, from worker " + std::to_string(worker);
            const plan::UnitWorkers found =
                plan::workers_of_unit(model.share(), start, model.tiles(cut.request, cut.unit), c.workers);
            if (side == 1 && found.first < worker) continue;
            if (!sharers[{cut.request, cut.unit}].insert(worker).second) return "a unit shared twice by one worker";
        }
    }
    if (sharers.size() != units.size()) return "number of shared units";
    for (const auto& [unit, parts] : units) {
        std::set<int> workers;
        for (const Part& part : parts) workers.insert(part.worker);
        if (sharers[unit] != workers) return "workers that know of a unit";
    }
    return "";
}

TEST(SharedUnits, EveryWorkerFindsItsPartners) {
    int shared[2] = {0, 0};
    for (int i = 0; i < 12'000; ++i) {
        ScheduleCase c = CaseMaker(static_cast<std::uint64_t>(i) + 20'001).make();
        if (c.chunk_tiles > 0) continue;
        ASSERT_EQ(check(c, shared), "") << "seed " << i + 20'001 << ": b " << c.lengths.size() << ", workers "
                                        << c.workers;
    }
    EXPECT_GT(shared[0], 10'000);
    EXPECT_GT(shared[1], 10'000);
}

TEST(SharedUnits, UnitsWithWorkersOfTheirOwn) {
    int own = 0;
    int ragged = 0;
    for (int i = 0; i < 4'000; ++i) {
        CaseMaker maker(static_cast<std::uint64_t>(i) + 1);
        const int longest = maker.between(1, 400) * 64;
        ScheduleCase c{.heads = 128, .row_tiles_per_unit = 2, .workers = maker.between(4, 132), .lengths = {}};
        for (int request = maker.between(1, 8); request > 0; --request) {
            c.lengths.push_back(longest - maker.between(0, longest / 8));
        }
        int shared[2] = {0, 0};
        ASSERT_EQ(check(c, shared), "") << "seed " << i + 1;
        const bool taken = LineModel(c).own_workers_each() > 0;
        own += taken;
        ragged += taken && c.lengths.size() > 1;
    }
    EXPECT_GT(own, 1'000);
    EXPECT_GT(ragged, 500);
}

TEST(SharedUnits, OneRequestIsSharedByAllWorkers) {
    for (const int workers : {2, 66, 132}) {
        for (const int tiles : {100, 132, 133, 263, 264, 265, 1000}) {
            int shared[2] = {0, 0};
            const ScheduleCase c{.heads = 64, .workers = workers, .lengths = {64 * tiles}};
            EXPECT_EQ(check(c, shared), "") << workers << " workers, " << tiles << " key tiles";
            EXPECT_EQ(shared[workers > 2], 1);
        }
    }
}

TEST(SharedUnits, TheLargestBatch) {
    ScheduleCase c{.heads = 128, .row_tiles_per_unit = 2, .workers = 66, .lengths = {}};
    CaseMaker maker(7);
    for (int i = 0; i < 100'000; ++i) c.lengths.push_back(maker.between(0, 2'000'000));
    int shared[2] = {0, 0};
    EXPECT_EQ(check(c, shared), "");
    EXPECT_GT(shared[0], 50);
}

}  // namespace
}  // namespace flashmla::test
