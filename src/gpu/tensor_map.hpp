// TMA tensor maps: a description of a strided global tensor and the box that one bulk copy moves.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "flashmla/status.hpp"
#include "flashmla/types.hpp"

namespace flashmla::gpu {

// One axis of the tensor, innermost first; axis 0 has stride 1.
struct MapAxis {
    std::int64_t extent = 1;
    std::int64_t stride_elements = 0;  // ignored for axis 0; where extent is 1 any value does
    std::uint32_t box = 1;             // elements of this axis in one copy, at most 256
};

inline constexpr int kMapRank = 5;

struct MapSpec {
    const char* tensor = "";  // for messages
    const void* base = nullptr;
    DType dtype = DType::kBFloat16;
    MapAxis axes[kMapRank];
    int rank = 2;
    // Whether a miss in L2 fetches 128 bytes rather than 32-byte sectors: for streams that nothing has prefetched.
    bool promote_l2 = false;
};

// 128-byte swizzle, no interleave, elements out of bounds read as zero. Base and strides must be multiples of 16 bytes:
// kUnsupported otherwise, naming the tensor.
Status encode_tensor_map(const MapSpec& spec, CUtensorMap* map);

}  // namespace flashmla::gpu
