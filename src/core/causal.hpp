// The one place that knows which keys a query token sees.
#pragma once

#include "core/host_device.hpp"

namespace flashmla::core {

// Keys [0, result) are visible to query token `token` of `s_q`. Clamps at 0: with s_q > len the first tokens see
// nothing.
FLASHMLA_HD int visible_keys(int len, int s_q, int token, bool causal) {
    return causal ? max_of(0, len - s_q + token + 1) : len;
}

// The first query token that sees key `key`; s_q or more when none does.
FLASHMLA_HD int first_seeing_token(int len, int s_q, int key, bool causal) {
    return causal ? max_of(0, key - (len - s_q)) : 0;
}

}  // namespace flashmla::core
