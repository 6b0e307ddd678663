// Row tiles of ragged batches, handed out to threads: a task is a row tile of one KV head of one request.
#pragma once

#include <cstdint>
#include <mutex>

#include "core/row_tiling.hpp"

namespace flashmla::backends::cpu {

struct RowTile {
    std::int64_t request = 0;
    int kv_head = 0;
    int tile = 0;
    core::RowTiling tiling;  // of the request's KV heads
};

// Of one KV head of a request in a ragged batch; a request without tokens has no tiles.
inline core::RowTiling ragged_tiling(int heads, int tokens, int tile_rows) {
    if (tokens > 0) return core::make_row_tiling(heads, tokens, tile_rows);
    core::RowTiling none;
    none.tiles = 0;
    return none;
}

// In order of requests and KV heads; the tiles of one from the last to the first, because under a causal mask the last
// one has the most keys.
class RowTileQueue {
public:
    // tiling_of(request): ragged_tiling.
    RowTileQueue(std::int64_t requests, int kv_heads) : requests_(requests), kv_heads_(kv_heads) {}

    template <class TilingOf>
    bool take(RowTile& task, const TilingOf& tiling_of) {
        const std::lock_guard lock(mutex_);
        while (left_ == 0) {
            if (next_.kv_head + 1 < kv_heads_ && next_.request >= 0) {
                ++next_.kv_head;
            } else {
                if (next_.request + 1 >= requests_) return false;
                ++next_.request;
                next_.kv_head = 0;
                next_.tiling = tiling_of(next_.request);
            }
            left_ = next_.tiling.tiles;
        }
        task = next_;
        task.tile = --left_;
        return true;
    }

private:
    std::mutex mutex_;
    std::int64_t requests_;
    int kv_heads_;
    int left_ = 0;  // tiles of the unit not yet taken
    RowTile next_{.request = -1, .kv_head = 0, .tile = 0, .tiling = {}};
};

}  // namespace flashmla::backends::cpu
