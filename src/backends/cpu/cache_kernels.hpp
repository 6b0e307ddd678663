// What cache operations do to runs of values, one set of functions an instruction set: cache_kernels_<isa>.cpp.
#pragma once

#include <cstdint>

#include "flashmla/status.hpp"
#include "flashmla/types.hpp"

namespace flashmla::backends::cpu {

// Values that share scales.
struct GroupedValues {
    DType dtype = DType::kFloat32;
    const std::uint8_t* data = nullptr;
    int groups = 0;  // at most kMaxGroups
    int group = 0;   // values in each
    bool power_of_two = true;
};
inline constexpr int kMaxGroups = 8;

// Any count, any alignment; a DType is bf16, fp16 or fp32. The bits are those of core/float_formats.hpp and
// core/kv_quantize.hpp on every path (the payload of a NaN apart).
struct CacheKernels {
    // Values of one type to another: nearest, ties to even.
    void (*cast)(DType from_type, const std::uint8_t* from, int count, DType to_type, std::uint8_t* to);
    // to = e4m3(from / scale).
    void (*quantize)(DType from_type, const std::uint8_t* from, int count, float scale, std::uint8_t* to);
    // The same group by group, with the scales that the largest finite magnitudes ask for, which go to `scales`.
    void (*quantize_groups)(const GroupedValues& from, float* scales, std::uint8_t* to);
    // to = value(from) * scale.
    void (*dequantize)(const std::uint8_t* from, int count, float scale, DType to_type, std::uint8_t* to);
};

// Null when the path is not compiled in.
const CacheKernels* cache_kernels_portable();
const CacheKernels* cache_kernels_avx2();
const CacheKernels* cache_kernels_avx512();

// For this machine, or the path that FLASHMLA_CPU_ISA names.
Result<const CacheKernels*> select_cache_kernels();

}  // namespace flashmla::backends::cpu
