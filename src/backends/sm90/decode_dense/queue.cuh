// The queue of pieces: the schedule warp writes records, every role reads them in turn.
#pragma once

#include "backends/sm90/decode_dense/shared.cuh"
#include "gpu/jitter.cuh"
#include "gpu/thread.cuh"

namespace flashmla::backends::sm90::decode_dense {

// The writing end, for one warp of the producer's warpgroup, so that length look-ups and divisions stay off everybody
// else's path and out of their registers.
struct PieceWriter {
    Shared& shared;
    int lane;
    gpu::RingPosition<kQueueSlots> at{};

    __device__ __forceinline__ void write(const PieceRecord& record) {
        gpu::jitter<3>(80);
        shared.barriers.piece_empty[at.slot].wait(at.phase ^ 1);
        if (lane == 0) shared.queue[at.slot] = record;
    }

    // What was written, to the readers.
    __device__ __forceinline__ void announce() {
        gpu::arrive_as_warp(shared.barriers.piece_full[at.slot], lane);
        at.advance(1);
    }

    __device__ __forceinline__ const PieceRecord& last() const {
        return shared.queue[(at.slot + kQueueSlots - 1) % kQueueSlots];
    }
};

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
