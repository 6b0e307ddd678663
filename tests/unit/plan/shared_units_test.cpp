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

// The first property that fails, or "". `shared` counts units of two parts and of more.
std::string check(const ScheduleCase& c, int (&shared)[2]) {
    const plan::WorkShape w = c.shape();
    const LineModel model(c);
    const std::vector<plan::Cut> cuts = plan::worker_cuts(w, c.lengths, c.workers);
    const auto units = split_units(c, cuts);
    if (!units.empty() && model.whole_units_each() > 0) return "a split where units stay whole";

    for (const auto& [unit, parts] : units) {
        const auto [request, index] = unit;
        const std::string name = "request " + std::to_string(request) + " unit " + std::to_string(index) + ": ";
        const plan::UnitWorkers found =
            plan::workers_of_unit(model.share(), model.start(request, index), model.tiles(request, index), c.workers);
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

    // A worker learns of the unit at its first cut and of the one at its last cut; the latter is a second one only if
    // the worker is the first of those that share it.
    std::map<Unit, std::set<int>> sharers;
    for (int worker = 0; worker < c.workers; ++worker) {
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
