// Where the bytes of the packed fp8 cache records lie (docs/kv_formats.md), for encoders and decoders on host and
// device.
#pragma once

#include <cstdint>

namespace flashmla::core {

// DeepSeek-V3.2: each token's record is contiguous: values, scales, rotary part.
namespace kv656 {
inline constexpr int kDimQk = 576;
inline constexpr int kQuantized = 512;    // e4m3 values, from byte 0
inline constexpr int kGroup = 128;        // values that share a scale
inline constexpr int kScaleOffset = 512;  // 4 fp32 scales
inline constexpr int kRopeOffset = 528;   // 64 bf16 values
inline constexpr int kRope = 64;
inline constexpr int kRecordBytes = 656;
}  // namespace kv656

// V4: a page holds first every token's values, then every token's scales.
namespace kv584 {
inline constexpr int kDimQk = 512;
inline constexpr int kQuantized = 448;   // e4m3 values, from the token's byte 0
inline constexpr int kGroup = 64;        // values that share a scale
inline constexpr int kRopeOffset = 448;  // 64 bf16 values, from the token's byte 448
inline constexpr int kRope = 64;
inline constexpr int kValueBytes = 576;  // of one token: values and rotary part
inline constexpr int kScaleBytes = 8;    // of one token: 7 e8m0 scales and a pad byte, after all the values of the page
inline constexpr int kRecordBytes = 584;
inline constexpr int kPageGranuleBytes = 576;  // a page is rounded up to a multiple of it
}  // namespace kv584

}  // namespace flashmla::core
