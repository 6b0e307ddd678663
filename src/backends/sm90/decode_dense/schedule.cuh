// Prologue: every CTA derives its worker's range from the lengths, so the schedule costs no launch and cannot be stale.
#pragma once

#include "backends/sm90/decode_dense/params.hpp"
#include "backends/sm90/decode_dense/shared.cuh"
#include "core/problem.hpp"
#include "gpu/jitter.cuh"
#include "gpu/thread.cuh"

namespace flashmla::backends::sm90::decode_dense {

__device__ __forceinline__ int length_of(const Params& p, int request) {
    return core::request_length(p.lengths, p.lengths_are_cumulative, p.capacity, request);
}

// A worker's own range, and whether any unit of the launch is spread over several workers.
struct WorkerRange {
    plan::Cut begin, end;
    bool splits;
};

__device__ __forceinline__ plan::Cut from_lane(const plan::Cut& cut, int lane) {
    return {__shfl_sync(~0u, cut.request, lane), __shfl_sync(~0u, cut.unit, lane), __shfl_sync(~0u, cut.tile, lane)};
}

// Starts the way of the lengths into L2, before there is time to wait for them.
__device__ __forceinline__ void prefetch_lengths(const Params& p, int lane) {
    for (int first = 32 * lane; first < p.work.b; first += 32 * 32) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p.lengths + first));
    }
}

// One warp. Lane 0 looks for the worker's own cut and lane 1 for the next worker's, so that the arithmetic is there
// once: the code is cold at every launch, and instruction fetches cost more than what it computes. Leaves the units
// that the worker shares in shared memory.
__device__ __forceinline__ WorkerRange find_range(const Params& p, Shared& shared, int worker, int lane) {
    const plan::WorkShape& work = p.work;
    const int side = lane % 2;
    const int per_lane = core::ceil_div(work.b, 32);
    const int first = core::min_of(work.b, lane * per_lane);
    const int last = core::min_of(work.b, first + per_lane);
    if (lane == 0) shared.entered.count = shared.left.count = 0;
    __syncwarp();

    long long own_cost = 0;
    int longest = 0;
#pragma unroll 1
    for (int request = first; request < last; ++request) {
        const int len = length_of(p, request);
        longest = core::max_of(longest, plan::key_tiles(len));
        own_cost += plan::request_cost(work, len);
    }
    long long before = own_cost;
#pragma unroll 1
    for (int step = 1; step < 32; step *= 2) {
        const long long other = __shfl_up_sync(~0u, before, step);
        if (lane >= step) before += other;
    }
    const long long total = __shfl_sync(~0u, before, 31);
    before -= own_cost;
    longest = __reduce_max_sync(~0u, longest);

    plan::Cut cut{work.b, 0, 0};
    SharedUnit unit{0, 0, 0, 0};
    if (plan::whole_units_do(work, p.shares, total, longest, p.num_workers)) {
        cut = plan::whole_unit_cut(work, p.shares, worker + side);
        return {from_lane(cut, 0), from_lane(cut, 1), false};
    }
    if (plan::own_workers_do(work, p.shares, total, longest, p.num_workers)) {
        const plan::OwnUnit own = plan::own_unit(work, p.shares, worker + side);
        const int len = own.request < work.b ? length_of(p, own.request) : 0;
        const int tiles = plan::unit_key_tiles(work, len, own.unit);
        const int piece_tiles = plan::own_piece_tiles(p.shares, tiles);
        if (worker + side < p.num_workers) cut = plan::own_unit_cut(work, own, tiles, piece_tiles);
        const bool has_piece = own.request < work.b && own.place * static_cast<long long>(piece_tiles) < tiles;
        if (has_piece && piece_tiles < tiles) {
            unit = {own.request, own.unit, worker - own.place, core::ceil_div(tiles, piece_tiles)};
        }
        if (lane == 0) (own.place == 0 ? shared.left : shared.entered) = unit;
        return {from_lane(cut, 0), from_lane(cut, 1), true};
    }

    // The request in which the worker's line begins or ends: found by the lane that holds it, worked out by lane 0
    // or 1.
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
    return {from_lane(cut, 0), from_lane(cut, 1), work.chunk_tiles == 0};
}

// Walks the worker's pieces and hands each to the other roles through the queue; one warp of the producer's warpgroup,
// so that length look-ups and divisions stay off everybody else's path and out of their registers.
__device__ __forceinline__ void publish_pieces(const Params& p, Shared& shared, const WorkerRange& range, int worker,
                                               int tile_in_unit, int lane) {
    const plan::WorkShape& work = p.work;
    const core::RowTiling& rows = work.rows;
    gpu::RingPosition<kQueueSlots> at{};
    plan::Cut cut = range.begin;
    while (true) {
        PieceRecord record{.request = -1};
        if (plan::before(cut, range.end)) {
            const int len = length_of(p, cut.request);
            const plan::Piece piece = plan::piece_at(work, cut, range.end, len, worker, p.max_chunks);
            const int row_tile = work.first_row_tile(piece.unit) + tile_in_unit;
            record = {piece.request,
                      work.kv_head(piece.unit),
                      rows.first_token(row_tile),
                      rows.first_head(row_tile),
                      piece.tile_begin,
                      piece.tile_end,
                      static_cast<int>(piece.slot),  // the plan keeps slots below 2^31
                      len};
            cut = plan::cut_after(work, piece, len);
        }
        gpu::jitter<3>(80);
        shared.barriers.piece_empty[at.slot].wait(at.phase ^ 1);
        if (lane == 0) shared.queue[at.slot] = record;
        gpu::arrive_as_warp(shared.barriers.piece_full[at.slot], lane);
        at.advance(1);
        if (record.request < 0) return;
    }
}

// A role's place in the queue. `piece()` stays valid until the next call of `next` by this warp.
struct PieceReader {
    Shared& shared;
    int taken = 0;  // records taken so far

    __device__ __forceinline__ explicit PieceReader(Shared& shared_) : shared(shared_) {}

    __device__ __forceinline__ const PieceRecord& piece() const { return shared.queue[(taken - 1) & 3]; }

    // False at the end of the worker's range.
    __device__ __forceinline__ bool next() {
        static_assert(kQueueSlots == 4, "the masks below");
        if (taken > 0) {
            gpu::arrive_as_warp(shared.barriers.piece_empty[(taken - 1) & 3], gpu::place().lane);
        }
        shared.barriers.piece_full[taken & 3].wait((taken >> 2) & 1);
        ++taken;
        return gpu::uniform(piece().request) >= 0;
    }
};

}  // namespace flashmla::backends::sm90::decode_dense
