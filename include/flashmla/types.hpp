// The small vocabulary every interface shares: element types, devices, streams.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flashmla {

enum class DType : std::uint8_t { kBFloat16, kFloat16, kFloat32, kInt32 };

constexpr std::size_t size_bytes(DType dtype) {
    switch (dtype) {
        case DType::kBFloat16:
        case DType::kFloat16: return 2;
        case DType::kFloat32:
        case DType::kInt32: return 4;
    }
    return 0;
}

constexpr const char* name(DType dtype) {
    switch (dtype) {
        case DType::kBFloat16: return "bfloat16";
        case DType::kFloat16: return "float16";
        case DType::kFloat32: return "float32";
        case DType::kInt32: return "int32";
    }
    return "unknown";
}

enum class DeviceType : std::uint8_t { kCpu, kCuda };

struct Device {
    DeviceType type = DeviceType::kCpu;
    int index = 0;  // CUDA ordinal; 0 for the CPU
    friend bool operator==(const Device&, const Device&) = default;
};

// A CUDA stream as an opaque handle (cudaStream_t); null is the default stream, and what CPU calls pass.
using StreamHandle = void*;

}  // namespace flashmla
