// Prologue: every CTA derives its worker's range from the lengths, so the schedule costs no launch and cannot be stale.
#pragma once

#include "backends/sm90/decode_dense/params.hpp"
#include "backends/sm90/decode_dense/shared.cuh"
#include "core/problem.hpp"

namespace flashmla::backends::sm90::decode_dense {

__device__ __forceinline__ int length_of(const Params& p, int request) {
    return core::request_length(p.lengths, p.lengths_are_cumulative, p.capacity, request);
}

// Sum over a warp of numbers from 0 to 2^51: two instructions, where shuffles take ten.
__device__ __forceinline__ long long warp_sum(long long value) {
    constexpr int kLowBits = 24;
    const unsigned int low = __reduce_add_sync(~0u, static_cast<unsigned int>(value) & ((1u << kLowBits) - 1));
    const unsigned int high = __reduce_add_sync(~0u, static_cast<unsigned int>(value >> kLowBits));
    return (static_cast<long long>(high) << kLowBits) + low;
}

__device__ __forceinline__ PieceRecord make_record(const plan::WorkShape& work, const plan::Piece& piece, int len,
                                                   int tile_in_unit) {
    const core::RowTiling& rows = work.rows;
    const int row_tile = work.first_row_tile(piece.unit) + tile_in_unit;
    return {piece.request,
            work.kv_head(piece.unit),
            rows.first_token(row_tile),
            rows.first_head(row_tile),
            piece.tile_begin,
            piece.tile_end,
            static_cast<int>(piece.slot),  // the plan keeps slots below 2^31
            len};
}

// One warp, and everybody waits for it: so the common cases are found with as few instructions as possible, each some
// five cycles, or twenty where the code is cold. Leaves the range, the units that the worker shares, and the piece of a
// worker that has only one in shared memory.
__device__ __forceinline__ void find_range(const Params& p, Shared& shared, int worker, int tile_in_unit, int lane) {
    const plan::WorkShape& work = p.work;
    const int per_lane = core::ceil_div(work.b, 32);
    const int first = core::min_of(work.b, lane * per_lane);
    const int last = core::min_of(work.b, first + per_lane);
    // The worker's unit where units have workers of their own; its length comes along with all others.
    const plan::OwnUnit own = plan::own_unit(work, p.shares, worker);
    int own_len = 0;
    long long own_cost = 0;
    int longest = 0;
#pragma unroll 1
    for (int request = first; request < last; ++request) {
        const int len = length_of(p, request);
        if (request == own.request) own_len = len;
        longest = core::max_of(longest, plan::key_tiles(len));
        own_cost += plan::request_cost(work, len);
    }
    if (lane == 0) shared.entered.count = shared.left.count = 0;
    __syncwarp();
    const long long total = warp_sum(own_cost);
    longest = __reduce_max_sync(~0u, longest);
    own_len = __reduce_max_sync(~0u, own_len);

    const plan::Arrangement how = plan::arrangement(work, p.shares, total, longest, p.num_workers);
    if (lane == 0) {
        shared.range.own = false;
        shared.range.splits = how != plan::Arrangement::kWholeUnits && work.chunk_tiles == 0;
    }
    if (how == plan::Arrangement::kOwnWorkers) {
        const int tiles = plan::unit_key_tiles(work, own_len, own.unit);
        const int piece_tiles = plan::own_piece_tiles(p.shares, tiles);
        const plan::Piece piece = plan::own_piece(work, own, tiles, piece_tiles, worker);
        if (lane == 0) {
            shared.range.own = piece.request >= 0;
            shared.range.begin = shared.range.end = {};
            shared.queue[0] = make_record(work, piece, own_len, tile_in_unit);
            if (piece.slot >= 0) {
                shared.entered = {own.request, own.unit, worker - own.place, core::ceil_div(tiles, piece_tiles)};
            }
        }
        return;
    }

    // Lane 0 looks for the worker's own cut and lane 1 for the next worker's, so that the arithmetic is there once.
    const int side = lane % 2;
    plan::Cut cut{work.b, 0, 0};
    if (how == plan::Arrangement::kWholeUnits) {
        cut = plan::whole_unit_cut(work, p.shares, worker + side);
        if (lane < 2) (lane == 0 ? shared.range.begin : shared.range.end) = cut;
        return;
    }

    // The request in which the worker's line begins or ends: found by the lane that holds it, worked out by lane 0
    // or 1.
    long long before = own_cost;
#pragma unroll 1
    for (int step = 1; step < 32; step *= 2) {
        const long long other = __shfl_up_sync(~0u, before, step);
        if (lane >= step) before += other;
    }
    before -= own_cost;
    const long long share = plan::worker_share(work, total, p.num_workers);
    int found[2] = {-1, -1};
    long long found_at[2] = {0, 0};
#pragma unroll 1
    for (int request = first; request < last; ++request) {
        const long long end = before + plan::request_cost(work, length_of(p, request));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const long long position = plan::worker_position(work, share, worker + i);
            if (position < before || position >= end) continue;
            found[i] = request;
            found_at[i] = before;
        }
        before = end;
    }
    int request = -1;
    long long start = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const unsigned int holders = __ballot_sync(~0u, found[i] >= 0);
        const int holder = holders == 0 ? 0 : __ffs(holders) - 1;
        const int its_request = __shfl_sync(~0u, found[i], holder);
        const long long its_start = __shfl_sync(~0u, found_at[i], holder);
        if (side == i && holders != 0) {
            request = its_request;
            start = its_start;
        }
    }
    SharedUnit unit{0, 0, 0, 0};
    if (request >= 0) {
        const int len = length_of(p, request);
        const long long position = plan::worker_position(work, share, worker + side);
        cut = plan::cut_in_request(work, len, request, position - start);
        if (cut.tile > 0 && work.chunk_tiles == 0) {
            const plan::UnitWorkers workers = plan::workers_of_unit(
                share, position - work.visit_cost - cut.tile, plan::unit_key_tiles(work, len, cut.unit), p.num_workers);
            unit = {request, cut.unit, workers.first, workers.count};
        }
    }
    // A worker that lies inside one unit both enters and leaves it, with one piece.
    if (lane == 0) shared.entered = unit;
    if (lane == 1 && !(unit.count > 0 && unit.first_worker < worker)) shared.left = unit;
    if (lane < 2) (lane == 0 ? shared.range.begin : shared.range.end) = cut;
}

}  // namespace flashmla::backends::sm90::decode_dense
