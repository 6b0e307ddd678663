// Integers of the Hopper dense-decode kernel. The catalogue (src/plan) reads them; nothing else repeats them.
#pragma once

#include <cstdint>

namespace flashmla::backends::sm90::decode_dense {

inline constexpr const char* kName = "sm90_decode_dense";
inline constexpr int kRowTile = 64;    // query rows a CTA
inline constexpr int kKeyTile = 64;    // tokens a step; equals the page size this kernel takes
inline constexpr int kDimQk = 576;
inline constexpr int kDimV = 512;
inline constexpr int kThreads = 512;
inline constexpr int kVisitCost = 2;   // key tiles that visiting a unit costs (query load, epilogue)

}  // namespace flashmla::backends::sm90::decode_dense
