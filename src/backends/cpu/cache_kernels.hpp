// What cache operations do to runs of values, one set of functions an instruction set: cache_kernels_<isa>.cpp.
#pragma once

#include <cstdint>

#include "flashmla/status.hpp"
#include "flashmla/types.hpp"

namespace flashmla::backends::cpu {

// Any count, any alignment. The bits are those of core/float_formats.hpp and core/kv_quantize.hpp on every path (the
// payload of a NaN apart).
struct CacheKernels {
    // bf16, fp16 or fp32 values to fp32.
    void (*widen)(DType dtype, const std::uint8_t* from, int count, float* to);
    // fp32 to bf16, fp16 or fp32: nearest, ties to even.
    void (*narrow)(DType dtype, const float* from, int count, std::uint8_t* to);
    // Largest finite magnitude; 0 when there is none.
    float (*largest_finite)(const float* from, int count);
    // to = e4m3(from / scale).
    void (*quantize)(const float* from, int count, float scale, std::uint8_t* to);
    // to = value(from) * scale.
    void (*dequantize)(const std::uint8_t* from, int count, float scale, float* to);
};

// Null when the path is not compiled in.
const CacheKernels* cache_kernels_portable();
const CacheKernels* cache_kernels_avx2();
const CacheKernels* cache_kernels_avx512();

// For this machine, or the path that FLASHMLA_CPU_ISA names.
Result<const CacheKernels*> select_cache_kernels();

}  // namespace flashmla::backends::cpu
