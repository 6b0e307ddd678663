// The split schedule: ragged requests laid end to end on one line and cut into equal shares, one a worker.
//
// A *unit* is what one worker advances at a time: a (request, KV head, group of row tiles). On the line a unit with n
// key tiles takes `visit_cost + n` places: the visit (query load, epilogue) is paid in key tiles. Worker w owns the
// places [position(w), position(w + 1)), which a monotone map turns into cuts (request, unit, key tile); so every (row
// tile, key tile) is covered exactly once and the pieces of a unit are contiguous and ordered, whatever the costs are.
//
// Two simpler arrangements come first where they are done about as early: whole units, so many a worker
// (`kWholeUnits`), and few units that each have equally many workers to themselves (`kOwnWorkers`), so that no
// worker visits two units.
//
// Balance: with T = ceil((L - visit_cost) / P) for a line of length L and P workers, no worker costs more than T +
// visit_cost (a worker that starts inside a unit pays one visit more than its places), and no schedule costs less than
// L / P.
//
// Batch-invariant mode (chunk_tiles > 0): a unit is cut at multiples of chunk_tiles only, each chunk is a piece of its
// own and pays its own visit on the line. A cut moves back to the start of its chunk, hence T + visit_cost +
// chunk_tiles - 1.
//
// Everything here is a pure function of lengths, usable on both sides: the host planner walks the line serially, a
// kernel's prologue finds its own two cuts with a parallel prefix sum over `request_cost`. Nothing else may decide who
// does what.
#pragma once

#include <cstdint>

#include "core/causal.hpp"
#include "core/host_device.hpp"
#include "core/row_tiling.hpp"

namespace flashmla::plan {

inline constexpr int kKeyTile = 64;  // tokens
// What arrangements cost beyond their largest worker's places, in key tiles (measured on an H200): a merge where every
// worker has one piece, and the merges and further visits where most workers have pieces of two units.
inline constexpr int kOwnMerge = 7;
inline constexpr int kBalancedMerge = 14;
inline constexpr int kOwnPieces = 64;       // of a unit with workers of its own ..
inline constexpr int kOwnPieceTiles = 8;    // .. unless its pieces would have more key tiles than this
inline constexpr int kInvariantChunk = 32;  // key tiles a split in batch-invariant mode (2,048 tokens)

struct WorkShape {
    core::RowTiling rows;
    int b = 0;
    int h_kv = 1;
    int row_tiles_per_unit = 1;
    int visit_cost = 2;   // key tiles
    int chunk_tiles = 0;  // > 0: batch-invariant, cuts only at multiples of this many key tiles
    bool causal = false;
    core::Divisor by_groups;  // units a KV head: row tiles by row_tiles_per_unit, rounded up (count_units)

    FLASHMLA_HD int groups() const { return by_groups.value; }
    FLASHMLA_HD int units() const { return groups() * h_kv; }  // units a request
    FLASHMLA_HD int kv_head(int unit) const { return by_groups.quotient(unit); }
    FLASHMLA_HD int first_row_tile(int unit) const { return by_groups.remainder(unit) * row_tiles_per_unit; }
    // Every row tile sees the same keys.
    FLASHMLA_HD bool even() const { return !causal || rows.s_q == 1; }
};

// The same with by_groups filled in.
FLASHMLA_HD WorkShape count_units(WorkShape w) {
    w.by_groups = core::make_divisor(core::ceil_div(w.rows.tiles, w.row_tiles_per_unit));
    return w;
}

// Tiles that `keys` >= 0 keys fill; unsigned, so that lengths up to 2^31 - 1 do not overflow.
FLASHMLA_HD int key_tiles(int keys) {
    return static_cast<int>((static_cast<unsigned>(keys) + (kKeyTile - 1)) / kKeyTile);
}

// Key tiles that any row of a group of row tiles sees; every row tile of the group runs over all of them.
FLASHMLA_HD int group_key_tiles(const WorkShape& w, int len, int group) {
    if (w.even()) return key_tiles(len);
    const int last_tile = core::min_of((group + 1) * w.row_tiles_per_unit, w.rows.tiles) - 1;
    const int keys = core::visible_keys(len, w.rows.s_q, w.rows.end_token(last_tile) - 1, w.causal);
    return key_tiles(keys);
}

FLASHMLA_HD int unit_key_tiles(const WorkShape& w, int len, int unit) {
    return w.even() ? key_tiles(len) : group_key_tiles(w, len, w.by_groups.remainder(unit));
}

// Places on the line that a unit with `tiles` key tiles takes: one visit, or one a chunk, and the tiles.
FLASHMLA_HD std::int64_t unit_cost(const WorkShape& w, int tiles) {
    const int visits = w.chunk_tiles > 0 ? core::max_of(1, core::ceil_div(tiles, w.chunk_tiles)) : 1;
    return static_cast<std::int64_t>(visits) * w.visit_cost + tiles;
}

// Places on the line that a request takes.
FLASHMLA_HD std::int64_t request_cost(const WorkShape& w, int len) {
    if (w.even()) return w.units() * unit_cost(w, key_tiles(len));
    std::int64_t cost = 0;
    FLASHMLA_ROLLED
    for (int group = 0; group < w.groups(); ++group) cost += unit_cost(w, group_key_tiles(w, len, group));
    return cost * w.h_kv;
}

// A worker's share T in places of the line. At least 1, so that positions increase strictly.
FLASHMLA_HD std::int64_t worker_share(const WorkShape& w, std::int64_t line_length, int workers) {
    return core::max_of<std::int64_t>(
        1, core::quotient(core::max_of<std::int64_t>(0, line_length - w.visit_cost) + workers - 1, workers));
}

// Where worker w starts. The first one also owns the first visit, so that equal shares of one request are equal in
// tiles.
FLASHMLA_HD std::int64_t worker_position(const WorkShape& w, std::int64_t share, int worker) {
    return worker == 0 ? 0 : w.visit_cost + share * worker;
}

// A point between key tiles. Ordered lexicographically; tile > 0 means strictly inside the unit.
struct Cut {
    int request = 0;
    int unit = 0;
    int tile = 0;
};

FLASHMLA_HD bool before(const Cut& a, const Cut& b) {
    if (a.request != b.request) return a.request < b.request;
    if (a.unit != b.unit) return a.unit < b.unit;
    return a.tile < b.tile;
}

// The cut at `offset` places into a request, 0 <= offset < request_cost.
FLASHMLA_HD Cut cut_in_request(const WorkShape& w, int len, int request, std::int64_t offset) {
    int unit = 0;
    if (w.even()) {
        const std::int64_t cost = unit_cost(w, key_tiles(len));
        unit = static_cast<int>(core::quotient(offset, cost));
        offset -= unit * cost;
    } else {
        std::int64_t cost = unit_cost(w, unit_key_tiles(w, len, unit));
        FLASHMLA_ROLLED
        while (offset >= cost) {
            offset -= cost;
            cost = unit_cost(w, unit_key_tiles(w, len, ++unit));
        }
    }
    if (w.chunk_tiles > 0) {
        const int chunk = static_cast<int>(core::quotient(offset, w.visit_cost + w.chunk_tiles));
        return {request, unit, chunk * w.chunk_tiles};
    }
    return {request, unit, static_cast<int>(core::max_of<std::int64_t>(0, offset - w.visit_cost))};
}

// What a launch knows before it knows lengths.
struct FixedShares {
    std::int64_t units_each = 0;  // units a worker when none is split; 0: units are never left whole
    core::Divisor workers_each;   // workers a unit when each has equally many to itself; 1: there are not enough
    core::Divisor pieces_each;    // pieces of such a unit, unless it is long: at most kOwnPieces of the above
};

FLASHMLA_HD FixedShares fixed_shares(const WorkShape& w, int workers) {
    FixedShares shares;
    const std::int64_t units = static_cast<std::int64_t>(w.b) * w.units();
    if (w.chunk_tiles > 0 || units == 0) return shares;
    shares.units_each = core::quotient(units + workers - 1, workers);
    if (2 * units <= workers) {
        shares.workers_each = core::make_divisor(static_cast<int>(core::quotient(workers, units)));
        shares.pieces_each = core::make_divisor(core::min_of(shares.workers_each.value, kOwnPieces));
    }
    return shares;
}

// Whether `cost` is at most worker_share.
FLASHMLA_HD bool within_share(const WorkShape& w, std::int64_t cost, std::int64_t line_length, int workers) {
    return cost <= 1 || line_length - w.visit_cost > (cost - 1) * workers;
}

// Key tiles of each piece of such a unit but the last, which may have fewer: equal shares, so that the merge has no
// more pieces than the longest one makes necessary. A merge takes longer by the piece: more than kOwnPieces only pay
// for units of many tiles.
FLASHMLA_HD int own_piece_tiles(const FixedShares& shares, int tiles) {
    if (tiles <= kOwnPieces * kOwnPieceTiles || shares.workers_each.value <= kOwnPieces) {
        return core::max_of(1, shares.pieces_each.quotient(tiles + shares.pieces_each.value - 1));
    }
    return core::ceil_div(tiles, core::min_of(shares.workers_each.value, core::ceil_div(tiles, kOwnPieceTiles)));
}

enum class Arrangement {
    kWholeUnits,  // none is split: done before any split ones
    kOwnWorkers,  // units have workers of their own: done before equal shares
    kBalanced,    // equal shares of the line
};

// `longest` is the largest number of key tiles of any unit.
FLASHMLA_HD Arrangement arrangement(const WorkShape& w, const FixedShares& shares, std::int64_t line_length,
                                    int longest, int workers) {
    const bool own = shares.workers_each.value > 1;
    const std::int64_t whole_cost = shares.units_each * (w.visit_cost + longest);
    const std::int64_t own_cost = w.visit_cost + own_piece_tiles(shares, longest) + kOwnMerge;
    if (shares.units_each > 0 && (!own || whole_cost <= own_cost) &&
        within_share(w, whole_cost - kBalancedMerge, line_length, workers)) {
        return Arrangement::kWholeUnits;
    }
    if (own && within_share(w, own_cost - kBalancedMerge, line_length, workers)) return Arrangement::kOwnWorkers;
    return Arrangement::kBalanced;
}

// Where worker w starts when nothing is split.
FLASHMLA_HD Cut whole_unit_cut(const WorkShape& w, const FixedShares& shares, int worker) {
    const std::int64_t unit = shares.units_each * worker;
    const std::int64_t request = core::quotient(unit, w.units());
    if (request >= w.b) return {w.b, 0, 0};
    return {static_cast<int>(request), static_cast<int>(unit - request * w.units()), 0};
}

// A contiguous run of key tiles of one unit: what a worker does between two visits.
struct Piece {
    int request = 0;
    int unit = 0;
    int tile_begin = 0;
    int tile_end = 0;        // half-open; begin == end only for a unit that sees no key
    std::int64_t slot = -1;  // of the partial result; -1: the whole unit, written straight to out
};

// Slots of the balanced schedule: a worker has at most two partial pieces, one entered midway and one left midway.
FLASHMLA_HD int entered_slot(int worker) { return 2 * worker; }
FLASHMLA_HD int left_slot(int worker) { return 2 * worker + 1; }

// The unit of a worker when units have workers of their own.
struct OwnUnit {
    int request = 0;  // b or more: there is none
    int unit = 0;
    int place = 0;  // of the worker among the unit's
};

FLASHMLA_HD OwnUnit own_unit(const WorkShape& w, const FixedShares& shares, int worker) {
    const int unit = shares.workers_each.quotient(worker);
    const int request = w.units() == 1 ? unit : unit / w.units();
    return {request, unit - request * w.units(), shares.workers_each.remainder(worker)};
}

// Where that worker starts, with `tiles` key tiles in its unit; one without a share starts where the unit ends.
FLASHMLA_HD Cut own_unit_cut(const WorkShape& w, const OwnUnit& own, int tiles, int piece_tiles) {
    if (own.request >= w.b) return {w.b, 0, 0};
    const std::int64_t begin = static_cast<std::int64_t>(own.place) * piece_tiles;
    if (own.place == 0 || begin < tiles) return {own.request, own.unit, static_cast<int>(begin)};
    if (own.unit + 1 < w.units()) return {own.request, own.unit + 1, 0};
    return {own.request + 1, 0, 0};
}

// That worker's only piece, as its cut and the next worker's have it; request < 0 if there is none.
FLASHMLA_HD Piece own_piece(const WorkShape& w, const OwnUnit& own, int tiles, int piece_tiles, int worker) {
    const std::int64_t begin = static_cast<std::int64_t>(own.place) * piece_tiles;
    if (own.request >= w.b || (own.place > 0 && begin >= tiles)) return {-1, 0, 0, 0, -1};
    const int first = static_cast<int>(begin);
    const int end = core::min_of(tiles - first, piece_tiles) + first;
    const int slot = first > 0 ? entered_slot(worker) : end < tiles ? left_slot(worker) : -1;
    return {own.request, own.unit, first, end, slot};
}

// The workers that share a unit (balanced schedule): `count` of them from `first`, one piece each.
struct UnitWorkers {
    int first = 0;
    int count = 1;
};

// Of the unit that begins at `start` on the line and has `tiles` key tiles, when some cut lies strictly inside it. A
// cut at position p with tile > 0 belongs to the unit that starts at p - visit_cost - tile.
FLASHMLA_HD UnitWorkers workers_of_unit(std::int64_t share, std::int64_t start, int tiles, int workers) {
    const int first = static_cast<int>(core::quotient(start, share));
    const int last = core::min_of(workers - 1, static_cast<int>(core::quotient(start + tiles - 1, share)));
    return {first, last - first + 1};
}

// Slots of the batch-invariant schedule: chunk c of a unit, for tables that allow `max_chunks` chunks a unit.
FLASHMLA_HD std::int64_t chunk_slot(const WorkShape& w, int request, int unit, int chunk, int max_chunks) {
    return (static_cast<std::int64_t>(request) * w.units() + unit) * max_chunks + chunk;
}

// The piece that starts at `at` for the worker that owns [.., end); `at` must lie before `end`.
FLASHMLA_HD Piece piece_at(const WorkShape& w, const Cut& at, const Cut& end, int len, int worker, int max_chunks) {
    const int tiles = unit_key_tiles(w, len, at.unit);
    Piece piece{at.request, at.unit, at.tile, tiles, -1};
    if (end.request == at.request && end.unit == at.unit) piece.tile_end = end.tile;
    if (w.chunk_tiles > 0) {
        piece.tile_end = core::min_of(piece.tile_end, at.tile + w.chunk_tiles);
        if (tiles > w.chunk_tiles) {
            piece.slot = chunk_slot(w, at.request, at.unit, at.tile / w.chunk_tiles, max_chunks);
        }
    } else if (piece.tile_begin > 0) {
        piece.slot = entered_slot(worker);
    } else if (piece.tile_end < tiles) {
        piece.slot = left_slot(worker);
    }
    return piece;
}

// The cut right after a piece: inside the unit, or the start of the next unit.
FLASHMLA_HD Cut cut_after(const WorkShape& w, const Piece& piece, int len) {
    if (piece.tile_end < unit_key_tiles(w, len, piece.unit)) return {piece.request, piece.unit, piece.tile_end};
    if (piece.unit + 1 < w.units()) return {piece.request, piece.unit + 1, 0};
    return {piece.request + 1, 0, 0};
}

}  // namespace flashmla::plan
