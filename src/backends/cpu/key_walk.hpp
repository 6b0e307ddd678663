// The keys of one task, a tile at a time: where their records lie, and never a byte that holds no live token.
#pragma once

#include <cstdint>

#include "backends/cpu/latent_call.hpp"
#include "backends/cpu/tile_kernels.hpp"

namespace flashmla::backends::cpu {

// Keys [begin, end) of a request by its block table; or entries [begin, end) of a query token's index lists, the extra
// list following the first, without those that name no token of their pool.
struct KeySpan {
    int request = 0;
    int token = 0;  // sparse
    int kv_head = 0;
    int begin = 0;
    int end = 0;
};

class KeyWalk {
public:
    KeyWalk(const LatentCall& call, const KeySpan& span);

    // Finds up to kKeyTile further keys; returns how many there are, 0 at the end.
    int next(KeyRows& rows);

private:
    int next_paged(KeyRows& rows);
    int next_listed(KeyRows& rows);

    const LatentCall& call_;
    KeySpan span_;
    int first_entries_ = 0;  // of the first list
};

// Whether any entry of the token's lists names a token.
bool any_key(const LatentCall& call, int request, int token);

}  // namespace flashmla::backends::cpu
