// Shared memory and barriers of one CTA.
#pragma once

#include "backends/sm90/decode_dense/config.hpp"
#include "gpu/barrier.cuh"
#include "gpu/wgmma.cuh"
#include "plan/split_schedule.hpp"

namespace flashmla::backends::sm90::decode_dense {

// One piece of work, with this CTA's row tile spelled out. request < 0 ends the queue.
struct PieceRecord {
    int request, kv_head, first_token, first_head;
    int tile_begin, tile_end;  // key tiles; empty for a unit that sees no key
    int slot;                  // of the partial result, or -1: straight to out
    int len;                   // of the request
};

// A unit whose pieces are spread over several workers, this one among them; count 0: there is none.
struct SharedUnit {
    int request, unit, first_worker, count;
};

// What a worker does: a range of the line, or one piece where units have workers of their own.
struct WorkerRange {
    plan::Cut begin, end;
    int own;     // the one piece is in the queue's first place, and the range empty
    int splits;  // whether any unit of the launch is shared by several workers
};

struct Barriers {
    // Slot of the ring is free: 4 warps of its reader (scores for query pairs, values left or right for KV pairs) in
    // every CTA of the cluster, since a slot is refilled in all of them at once.
    gpu::Barrier slot_empty[kRingSlots];
    // Own producer (1 + bytes), by key tile modulo kTileBarriers: the first three pairs, then the last pair and rope.
    // The producer cannot come round to a barrier before both values warpgroups have given back a pair of the tile it
    // stood for.
    gpu::Barrier head_full[kTileBarriers];
    gpu::Barrier last_full[kTileBarriers];
    gpu::Barrier rope_empty;       // scores: 4 warps a CTA of the cluster
    gpu::Barrier q_pairs_full[2];  // own producer (1 + bytes), by piece modulo 2: the three query pairs in the ring
    gpu::Barrier q_tail_full;      // own producer (1 + bytes)
    gpu::Barrier q_tail_empty;     // scores: 4 warps
    gpu::Barrier p_ready[2];       // scores: 4 warps. P and rescale factors, or the row sums of a piece, are in place
    gpu::Barrier p_free[2];        // values left and right: 8 warps have read them
    gpu::Barrier registers_free;   // producer's warpgroup, 4 warps: it has given up registers that the others take
    gpu::Barrier registers_back;   // the others, 12 warps: they have given up registers that it takes
    gpu::Barrier piece_full[kQueueSlots];   // schedule warp: a record is in place
    gpu::Barrier piece_empty[kQueueSlots];  // copy warp, 4 scores and 8 values warps have finished with the record
};

struct alignas(1024) Shared {
    unsigned char pairs[kRingSlots][2 * gpu::kTileBytes];
    unsigned char rope[gpu::kTileBytes];
    unsigned char q_tail[kQueryTailTiles][gpu::kTileBytes];
    unsigned char p[2][gpu::kTileBytes];
    float rescale[2][kRowTile];      // factor for the accumulator, valid when the warp's flag is set
    float inverse_sum[2][kRowTile];  // row sums of a piece: 1 / l, or 0 for a row without keys
    float row_lse[2][kRowTile];      // and the log-sum-exp, base 2, -inf for a row without keys
    int rescale_flag[2][4];          // a warp
    Barriers barriers;
    PieceRecord queue[kQueueSlots];
    SharedUnit entered, left;  // units it shares: the one it starts in the middle of, the one it stops in the middle of
    WorkerRange range;
};
static_assert(sizeof(Shared) == kSharedBytes);

}  // namespace flashmla::backends::sm90::decode_dense
