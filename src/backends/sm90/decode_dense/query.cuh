// Bulk copies of a piece's query: three pairs of tiles that pass through the ring into registers, and three tiles that
// stay in shared memory.
#pragma once

#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "backends/sm90/decode_dense/params.hpp"
#include "backends/sm90/decode_dense/shared.cuh"

namespace flashmla::backends::sm90::decode_dense {

inline constexpr std::uint64_t kCacheHint = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);

__device__ __forceinline__ void copy_query_tile(const Params& p, const PieceRecord& piece, int column,
                                                gpu::Barrier& full, void* tile) {
    cute::SM90_TMA_LOAD_5D::copy(&p.q, &full.word, kCacheHint, tile, column, piece.first_head, piece.first_token,
                                 piece.kv_head, piece.request);
}

// Of three, whose first one arms the barrier for all. One lane.
__device__ __forceinline__ void copy_query_pair(const Params& p, const PieceRecord& piece, int pair, gpu::Barrier& full,
                                                unsigned char* tiles) {
    if (pair == 0) full.arrive_expecting(2 * kQueryPairs * p.box_rows * gpu::kTileRowBytes);
    copy_query_tile(p, piece, pair_column(pair), full, tiles);
    copy_query_tile(p, piece, pair_column(pair) + 64, full, tiles + gpu::kTileBytes);
}

// One lane.
__device__ __forceinline__ void copy_query_tail(const Params& p, const PieceRecord& piece, Shared& shared) {
    gpu::Barrier& full = shared.barriers.q_tail_full;
    full.arrive_expecting(kQueryTailTiles * p.box_rows * gpu::kTileRowBytes);
    copy_query_tile(p, piece, pair_column(3), full, shared.q_tail[0]);
    copy_query_tile(p, piece, pair_column(3) + 64, full, shared.q_tail[1]);
    copy_query_tile(p, piece, kRopeColumn, full, shared.q_tail[2]);
}

}  // namespace flashmla::backends::sm90::decode_dense
