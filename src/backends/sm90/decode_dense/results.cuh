// Where results go in the caller's tensors.
#pragma once

#include "backends/sm90/decode_dense/params.hpp"
#include "backends/sm90/decode_dense/shared.cuh"

namespace flashmla::backends::sm90::decode_dense {

inline constexpr float kLn2 = 0.69314718055994530942f;
inline constexpr float kInfinity = __builtin_huge_valf();

// Log-sum-exp of row r of the piece's row tile, base 2 inside and natural outside, where a row without keys has +inf.
__device__ __forceinline__ void store_lse(const Params& p, const PieceRecord& piece, int r, float lse_log2) {
    const core::RowTiling& rows = p.work.rows;
    const int token = piece.first_token + rows.token_of(r);
    const int head = piece.first_head + rows.head_of(r);
    if (r >= rows.tile_heads * rows.tokens_per_tile || token >= rows.s_q || head >= rows.heads) return;
    p.lse[piece.request * p.lse_b + (piece.kv_head * rows.heads + head) * p.lse_head + token * p.lse_token] =
        lse_log2 == -kInfinity ? kInfinity : lse_log2 * kLn2;
}

}  // namespace flashmla::backends::sm90::decode_dense
