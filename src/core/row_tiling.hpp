// How the query rows of one (request, KV head) are packed into row tiles.
//
// A row is a (token, head) pair. Up to `tile_rows` heads share a tile: with fewer heads a tile holds several whole
// tokens, with more a token spans several tiles. A tile never mixes part of one token with part of another, so that one
// tensor map box (heads x tokens) loads any tile.
#pragma once

#include "core/divisor.hpp"
#include "core/host_device.hpp"

namespace flashmla::core {

struct RowTiling {
    int heads = 1;            // query heads a KV head
    int s_q = 1;              // query tokens a request
    int tokens_per_tile = 1;  // > 1 only when heads < tile_rows
    int tiles_per_token = 1;  // > 1 only when heads > tile_rows
    int tile_heads = 1;       // heads of a full tile: min(heads, tile_rows)
    int tiles = 1;            // row tiles of one (request, KV head)
    Divisor by_tiles_per_token;
    Divisor by_tile_heads;

    FLASHMLA_HD int first_token(int tile) const {
        return tiles_per_token > 1 ? by_tiles_per_token.quotient(tile) : tile * tokens_per_tile;
    }
    // Half-open: tokens [first_token, end_token) have rows in this tile.
    FLASHMLA_HD int end_token(int tile) const {
        return tiles_per_token > 1 ? first_token(tile) + 1 : min_of(s_q, (tile + 1) * tokens_per_tile);
    }
    FLASHMLA_HD int first_head(int tile) const {
        return tiles_per_token > 1 ? by_tiles_per_token.remainder(tile) * tile_heads : 0;
    }
    // Row r of a tile is of this token and head, counted from the tile's first; it exists when both are in range.
    FLASHMLA_HD int token_of(int r) const { return by_tile_heads.quotient(r); }
    FLASHMLA_HD int head_of(int r) const { return by_tile_heads.remainder(r); }
    FLASHMLA_HD int rows(int tile) const {
        return (end_token(tile) - first_token(tile)) * min_of(tile_heads, heads - first_head(tile));
    }
};

FLASHMLA_HD RowTiling make_row_tiling(int heads, int s_q, int tile_rows) {
    RowTiling tiling;
    tiling.heads = heads;
    tiling.s_q = s_q;
    tiling.tile_heads = min_of(heads, tile_rows);
    if (heads > tile_rows) {
        tiling.tiles_per_token = ceil_div(heads, tile_rows);
        tiling.tiles = tiling.tiles_per_token * s_q;
    } else {
        tiling.tokens_per_tile = min_of(s_q, tile_rows / heads);
        tiling.tiles = ceil_div(s_q, tiling.tokens_per_tile);
    }
    tiling.by_tiles_per_token = make_divisor(tiling.tiles_per_token);
    tiling.by_tile_heads = make_divisor(tiling.tile_heads);
    return tiling;
}

}  // namespace flashmla::core
