// Schedule warp, once the range is known: hands the worker's pieces to the other roles, and asks for the query of the
// first piece, whose places are free, while the producer is busy with the block table and the first keys.
#pragma once

#include "backends/sm90/decode_dense/query.cuh"
#include "backends/sm90/decode_dense/queue.cuh"
#include "backends/sm90/decode_dense/schedule.cuh"

namespace flashmla::backends::sm90::decode_dense {

// The query of the worker's first piece with keys, whose places in shared memory are free.
__device__ __forceinline__ void ask_for_query(const Params& p, Shared& shared, const PieceRecord& piece, int lane) {
    if (lane != 0) return;
#pragma unroll 1
    for (int pair = 0; pair < kQueryPairs; ++pair) {
        copy_query_pair(p, piece, pair, shared.barriers.q_pairs_full[0], shared.pairs[pair]);
    }
    copy_query_tail(p, piece, shared);
}

struct Publisher {
    const Params& p;
    Shared& shared;
    int worker;
    int tile_in_unit;
    int lane;
    PieceWriter queue;
    bool has_query;  // whether the first query was asked for

    __device__ __forceinline__ void run() {
        const WorkerRange& range = shared.range;
        for (plan::Cut cut = range.begin; plan::before(cut, range.end);) {
            const int len = length_of(p, cut.request);
            const plan::Piece piece = plan::piece_at(p.work, cut, range.end, len, worker, p.max_chunks);
            queue.write(make_record(p.work, piece, len, tile_in_unit));
            queue.announce();
            if (!has_query && piece.tile_begin < piece.tile_end) {
                has_query = true;
                ask_for_query(p, shared, queue.last(), lane);
            }
            cut = plan::cut_after(p.work, piece, len);
        }
        queue.write({.request = -1});
        queue.announce();
    }
};

}  // namespace flashmla::backends::sm90::decode_dense
