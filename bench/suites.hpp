// The shapes that dense decode is measured on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flashmla/status.hpp"

namespace flashmla::bench {

struct DecodeBenchCase {
    std::int64_t b = 1;
    std::int64_t h_q = 128;
    std::int64_t s_q = 1;
    std::int64_t mean_len = 4096;
    bool ragged = false;  // lengths spread around mean_len (ragged_lengths), otherwise all equal to it
    bool causal = false;
};

// "dense": b 128, ragged 4k to 32k, s_q 1 and 2, causal or not. "heads": b 128 at 8k with 8 to 128 heads; 16 heads at b
// 16 and 32 with 512 to 64k. "latency": b 1 with 1k to 128k; b 8 and 32 at 4k. "quick": a few small cases for a CPU.
Result<std::vector<DecodeBenchCase>> decode_suite(const std::string& name);

}  // namespace flashmla::bench
