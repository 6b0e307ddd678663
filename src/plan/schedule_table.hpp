// The split schedule as tables in host memory: what a kernel's prologue derives on the device, for planning, explaining
// and testing. Lengths are already held to [0, key_capacity].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/split_schedule.hpp"

namespace flashmla::plan {

// workers + 1 cuts: worker w does what lies between cuts[w] and cuts[w + 1]. The size is the same whatever the lengths
// are.
std::vector<Cut> worker_cuts(const WorkShape& w, std::span<const int> lengths, int workers);

std::int64_t line_length(const WorkShape& w, std::span<const int> lengths);

// What no worker's cost exceeds. A piece costs one visit and its key tiles.
std::int64_t cost_bound(const WorkShape& w, std::int64_t line_length, int workers);

struct ScheduleStats {
    std::int64_t line_length = 0;
    std::int64_t cost_bound = 0;
    std::int64_t max_cost = 0;
    double mean_cost = 0;  // over all workers, idle ones included
    std::int64_t pieces = 0;
    std::int64_t partial_pieces = 0;  // those that go through the workspace
};

ScheduleStats schedule_stats(const WorkShape& w, std::span<const int> lengths, std::span<const Cut> cuts,
                             int max_chunks);

// Calls visit(piece) for every piece of a worker, in order.
template <class Visit>
void for_each_piece(const WorkShape& w, std::span<const int> lengths, std::span<const Cut> cuts, int worker,
                    int max_chunks, Visit&& visit) {
    Cut at = cuts[static_cast<std::size_t>(worker)];
    const Cut end = cuts[static_cast<std::size_t>(worker) + 1];
    while (before(at, end)) {
        const int len = lengths[static_cast<std::size_t>(at.request)];
        const Piece piece = piece_at(w, at, end, len, worker, max_chunks);
        visit(piece);
        at = cut_after(w, piece, len);
    }
}

}  // namespace flashmla::plan
