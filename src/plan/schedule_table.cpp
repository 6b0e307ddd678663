#include "plan/schedule_table.hpp"

#include <algorithm>

namespace flashmla::plan {

std::int64_t line_length(const WorkShape& w, std::span<const int> lengths) {
    std::int64_t length = 0;
    for (int len : lengths) length += request_cost(w, len);
    return length;
}

std::vector<Cut> worker_cuts(const WorkShape& w, std::span<const int> lengths, int workers) {
    const std::int64_t length = line_length(w, lengths);
    const FixedShares shares = fixed_shares(w, workers);
    // Workers that start at or past the end of the line have nothing to do.
    const Cut end{static_cast<int>(lengths.size()), 0, 0};
    std::vector<Cut> cuts(static_cast<std::size_t>(workers) + 1, end);
    const int longest = lengths.empty() ? 0 : key_tiles(*std::max_element(lengths.begin(), lengths.end()));
    const Arrangement how = arrangement(w, shares, length, longest, workers);
    if (how == Arrangement::kWholeUnits) {
        for (int worker = 0; worker < workers; ++worker) {
            cuts[static_cast<std::size_t>(worker)] = whole_unit_cut(w, shares, worker);
        }
        return cuts;
    }
    if (how == Arrangement::kOwnWorkers) {
        for (int worker = 0; worker < workers; ++worker) {
            const OwnUnit own = own_unit(w, shares, worker);
            const int len = own.request < end.request ? lengths[static_cast<std::size_t>(own.request)] : 0;
            const int tiles = unit_key_tiles(w, len, own.unit);
            cuts[static_cast<std::size_t>(worker)] = own_unit_cut(w, own, tiles, own_piece_tiles(shares, tiles));
        }
        return cuts;
    }
    const std::int64_t share = worker_share(w, length, workers);
    int worker = 0;
    std::int64_t start = 0;
    for (int request = 0; request < end.request && worker < workers; ++request) {
        const int len = lengths[static_cast<std::size_t>(request)];
        const std::int64_t next = start + request_cost(w, len);
        for (; worker < workers && worker_position(w, share, worker) < next; ++worker) {
            cuts[static_cast<std::size_t>(worker)] =
                cut_in_request(w, len, request, worker_position(w, share, worker) - start);
        }
        start = next;
    }
    return cuts;
}

std::int64_t cost_bound(const WorkShape& w, std::int64_t line_length, int workers) {
    const int spare = w.chunk_tiles > 0 ? w.visit_cost + w.chunk_tiles - 1 : std::max(w.visit_cost, kBalancedMerge);
    return worker_share(w, line_length, workers) + spare;
}

ScheduleStats schedule_stats(const WorkShape& w, std::span<const int> lengths, std::span<const Cut> cuts,
                             int max_chunks) {
    const int workers = static_cast<int>(cuts.size()) - 1;
    ScheduleStats stats;
    stats.line_length = line_length(w, lengths);
    stats.cost_bound = cost_bound(w, stats.line_length, workers);
    std::int64_t total = 0;
    for (int worker = 0; worker < workers; ++worker) {
        std::int64_t cost = 0;
        for_each_piece(w, lengths, cuts, worker, max_chunks, [&](const Piece& piece) {
            cost += w.visit_cost + piece.tile_end - piece.tile_begin;
            ++stats.pieces;
            stats.partial_pieces += piece.slot >= 0;
        });
        stats.max_cost = std::max(stats.max_cost, cost);
        total += cost;
    }
    stats.mean_cost = static_cast<double>(total) / workers;
    return stats;
}

}  // namespace flashmla::plan
