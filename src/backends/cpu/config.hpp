// Sizes of the CPU kernel that others may rely on. README.md explains each choice.
#pragma once

#include "plan/split_schedule.hpp"

namespace flashmla::backends::cpu {

// Query rows (heads x tokens) that share one pass over the keys.
inline constexpr int kRowTile = 64;
// The same in dense prefill, whose short keys make the conversion of a key tile weigh more.
inline constexpr int kPrefillRowTile = 128;
// Keys converted, scored and accumulated at a time.
inline constexpr int kKeyTile = plan::kKeyTile;
// A task: what one thread does between two merges. A function of nothing, so that results depend on nothing.
inline constexpr int kChunkTokens = plan::kInvariantChunk * kKeyTile;
// Largest d_qk and d_v; both are multiples of the granule.
inline constexpr int kMaxDepth = 576;
inline constexpr int kMaxValueDepth = 512;
inline constexpr int kDepthGranule = 32;
// Keeps the workspace under 64 MB.
inline constexpr int kMaxThreads = 128;

}  // namespace flashmla::backends::cpu
