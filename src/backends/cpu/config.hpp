// Sizes of the CPU kernel that others may rely on. README.md explains each choice.
#pragma once

#include "plan/split_schedule.hpp"

namespace flashmla::backends::cpu {

inline constexpr int kRowTile = 64;              // query rows (heads x tokens) that share one pass over the keys
inline constexpr int kKeyTile = plan::kKeyTile;  // keys converted, scored and accumulated at a time
inline constexpr int kChunkTokens =
    plan::kInvariantChunk * kKeyTile;     // a task: what one thread does between two merges
inline constexpr int kMaxDepth = 576;     // d_qk
inline constexpr int kDepthGranule = 32;  // d_qk and d_v are multiples of it
inline constexpr int kMaxThreads = 128;   // holds the workspace under 64 MB

}  // namespace flashmla::backends::cpu
