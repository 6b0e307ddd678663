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

// The one scale of a run, and what makes bf16 values fast where it is no power of two. The code of a value depends on
// its seven mantissa bits in the same way in every octave, 8 more an octave, and of eight mantissas one after the other
// no more than two codes are made (codes are 8 mantissas apart or more).
struct FlatScale {
    float value = 1;
    bool has_steps = false;
    std::uint8_t first_exponent = 0;  // exponent bits of the octave whose codes begin at 0, were it not for subnormals
    std::uint8_t steps[16] = {};  // there: 8 times the code of mantissa 8 i, plus how many of the eight have the next
};

// Any count, any alignment; a DType is bf16, fp16 or fp32. The bits are those of core/float_formats.hpp and
// core/kv_quantize.hpp on every path (the payload of a NaN apart).
struct CacheKernels {
    // Values of one type to another: nearest, ties to even.
    void (*cast)(DType from_type, const std::uint8_t* from, int count, DType to_type, std::uint8_t* to);
    // to = e4m3(from / scale). The steps change nothing but the time.
    void (*quantize)(DType from_type, const std::uint8_t* from, int count, const FlatScale& scale, std::uint8_t* to);
    // The same group by group, with the scales that the largest finite magnitudes ask for, which go to `scales`.
    void (*quantize_groups)(const GroupedValues& from, float* scales, std::uint8_t* to);
    // to = value(from) * scale.
    void (*dequantize)(const std::uint8_t* from, int count, float scale, DType to_type, std::uint8_t* to);
};

// Null when the path is not compiled in.
const CacheKernels* cache_kernels_portable();
const CacheKernels* cache_kernels_avx2();
const CacheKernels* cache_kernels_avx512();

// With steps, where the scale is far enough from both ends of fp32 for all octaves to be alike. Takes as long as
// quantising a few hundred values.
FlatScale flat_scale(const CacheKernels& kernels, float scale);

// For this machine, or the path that FLASHMLA_CPU_ISA names.
Result<const CacheKernels*> select_cache_kernels();

}  // namespace flashmla::backends::cpu
