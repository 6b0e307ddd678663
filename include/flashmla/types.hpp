// The small vocabulary every interface shares: element types, devices, streams.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flashmla {

enum class DType : std::uint8_t { kBFloat16, kFloat16, kFloat32, kInt32, kFloat8E4m3, kUInt8, kInt64 };

inline constexpr DType kAllDTypes[] = {DType::kBFloat16,   DType::kFloat16, DType::kFloat32, DType::kInt32,
                                       DType::kFloat8E4m3, DType::kUInt8,   DType::kInt64};

constexpr std::size_t size_bytes(DType dtype) {
    switch (dtype) {
        case DType::kBFloat16:
        case DType::kFloat16: return 2;
        case DType::kFloat32:
        case DType::kInt32: return 4;
        case DType::kFloat8E4m3:
        case DType::kUInt8: return 1;
        case DType::kInt64: return 8;
    }
    return 0;
}

constexpr const char* name(DType dtype) {
    switch (dtype) {
        case DType::kBFloat16: return "bfloat16";
        case DType::kFloat16: return "float16";
        case DType::kFloat32: return "float32";
        case DType::kInt32: return "int32";
        case DType::kFloat8E4m3: return "float8_e4m3fn";
        case DType::kUInt8: return "uint8";
        case DType::kInt64: return "int64";
    }
    return "unknown";
}

enum class DeviceType : std::uint8_t { kCpu, kCuda };

struct Device {
    DeviceType type = DeviceType::kCpu;
    int index = 0;  // CUDA ordinal; 0 for the CPU
    friend bool operator==(const Device&, const Device&) = default;
};

// What the library computes. plan_decode serves kDecode, plan_prefill the three prefill operations; the others need no
// plan.
enum class Operation : std::uint8_t {
    kDecode,
    kSparsePrefill,
    kDensePrefill,
    kDensePrefillBackward,
    kAppend,
    kGather,
    kCopyPages,
    kConvert,
    kMerge,
    kAbsorb,
};

constexpr const char* name(Operation operation) {
    switch (operation) {
        case Operation::kDecode: return "decode";
        case Operation::kSparsePrefill: return "sparse_prefill";
        case Operation::kDensePrefill: return "dense_prefill";
        case Operation::kDensePrefillBackward: return "dense_prefill_backward";
        case Operation::kAppend: return "append";
        case Operation::kGather: return "gather";
        case Operation::kCopyPages: return "copy_pages";
        case Operation::kConvert: return "convert";
        case Operation::kMerge: return "merge";
        case Operation::kAbsorb: return "absorb";
    }
    return "unknown";
}

// A CUDA stream as an opaque handle (cudaStream_t); null is the default stream, and what CPU calls pass.
using StreamHandle = void*;

}  // namespace flashmla
