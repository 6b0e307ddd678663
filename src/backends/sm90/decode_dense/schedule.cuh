// Prologue: every CTA derives its worker's range from the lengths, so the schedule costs no launch and cannot be stale.
#pragma once

#include "backends/sm90/decode_dense/params.hpp"
#include "backends/sm90/decode_dense/shared.cuh"
#include "core/problem.hpp"
#include "gpu/thread.cuh"

namespace flashmla::backends::sm90::decode_dense {

__device__ __forceinline__ int length_of(const Params& p, int request) {
    return core::request_length(p.lengths, p.lengths_are_cumulative, p.capacity, request);
}

// Sum over the CTA's threads before this one, sum over all, and the largest `tiles` of any.
struct LineScan {
    long long before, total;
    int longest;
};

__device__ __forceinline__ LineScan scan_line(Shared& shared, long long own, int tiles) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    long long inclusive = own;
#pragma unroll 1
    for (int step = 1; step < 32; step *= 2) {
        const long long other = __shfl_up_sync(~0u, inclusive, step);
        if (lane >= step) inclusive += other;
    }
    tiles = __reduce_max_sync(~0u, tiles);
    if (lane == 31) {
        shared.warp_sums[warp] = inclusive;
        shared.warp_longest[warp] = tiles;
    }
    __syncthreads();
    LineScan scan{inclusive - own, 0, 0};
#pragma unroll 1
    for (int i = 0; i < kThreads / 32; ++i) {
        if (i < warp) scan.before += shared.warp_sums[i];
        scan.total += shared.warp_sums[i];
        scan.longest = core::max_of(scan.longest, shared.warp_longest[i]);
    }
    return scan;
}

// All threads. Leaves the worker's cuts in shared memory; the caller synchronises the CTA before they are read.
// One pass adds up the costs, a second finds the places. The code is cold at every launch, so it is kept small rather
// than unrolled: instruction fetches cost more than the arithmetic.
__device__ __forceinline__ void find_cuts(const Params& p, Shared& shared, int worker) {
    const plan::WorkShape& work = p.work;
    const int per_thread = core::ceil_div(work.b, kThreads);
    const int first = core::min_of(work.b, static_cast<int>(threadIdx.x) * per_thread);
    const int last = core::min_of(work.b, first + per_thread);

    if (threadIdx.x == 0) {
        shared.cuts[0] = shared.cuts[1] = plan::Cut{work.b, 0, 0};
        shared.entered.count = shared.left.count = 0;
    }
    long long at = 0;  // places before this thread's next request
    long long share = 0;
    int longest = 0;
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {
        const long long begin = at;
#pragma unroll 1
        for (int request = first; request < last; ++request) {
            const int len = length_of(p, request);
            longest = core::max_of(longest, plan::key_tiles(len));
            const long long end = at + plan::request_cost(work, len);
#pragma unroll 1
            for (int side = 0; side < 2 * pass; ++side) {
                const long long position = plan::worker_position(work, share, worker + side);
                if (position < at || position >= end) continue;
                const plan::Cut cut = plan::cut_in_request(work, len, request, position - at);
                shared.cuts[side] = cut;
                if (cut.tile == 0 || work.chunk_tiles > 0) continue;
                const plan::UnitWorkers workers =
                    plan::workers_of_unit(share, position - work.visit_cost - cut.tile,
                                          plan::unit_key_tiles(work, len, cut.unit), p.num_workers);
                // A worker that lies inside one unit both enters and leaves it, with one piece.
                if (side == 1 && workers.first < worker) continue;
                (side == 0 ? shared.entered : shared.left) =
                    SharedUnit{request, cut.unit, workers.first, workers.count};
            }
            at = end;
        }
        if (pass == 1) return;
        const LineScan scan = scan_line(shared, at - begin, longest);
        at = scan.before;
        share = plan::worker_share(work, scan.total, p.num_workers);
        const int whole = plan::whole_units_per_worker(work, scan.total, scan.longest, p.num_workers);
        if (whole > 0) {
            if (threadIdx.x < 2) {
                shared.cuts[threadIdx.x] = plan::whole_unit_cut(work, whole, worker + static_cast<int>(threadIdx.x));
            }
            return;
        }
    }
}

// Walks the worker's pieces and hands each to the other roles through the queue; one warp of the producer's warpgroup,
// so that length look-ups and divisions stay off everybody else's path and out of their registers.
__device__ __forceinline__ void publish_pieces(const Params& p, Shared& shared, int worker, int tile_in_unit,
                                               int lane) {
    const plan::WorkShape& work = p.work;
    const core::RowTiling& rows = work.rows;
    gpu::RingPosition<kQueueSlots> at{};
    plan::Cut cut = shared.cuts[0];
    while (true) {
        PieceRecord record{.request = -1};
        if (plan::before(cut, shared.cuts[1])) {
            const int len = length_of(p, cut.request);
            const plan::Piece piece = plan::piece_at(work, cut, shared.cuts[1], len, worker, p.max_chunks);
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
        shared.barriers.piece_empty[at.slot].wait(at.phase ^ 1);
        if (lane == 0) {
            shared.queue[at.slot] = record;
            shared.barriers.piece_full[at.slot].arrive();
        }
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
            __syncwarp();
            if (gpu::place().lane == 0) shared.barriers.piece_empty[(taken - 1) & 3].arrive();
        }
        shared.barriers.piece_full[taken & 3].wait((taken >> 2) & 1);
        ++taken;
        return gpu::uniform(piece().request) >= 0;
    }
};

}  // namespace flashmla::backends::sm90::decode_dense
