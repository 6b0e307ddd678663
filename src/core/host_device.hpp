// One spelling for code that runs on both sides: plain C++ under a host compiler, __host__ __device__ under nvcc.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define FLASHMLA_HD __host__ __device__ __forceinline__
#elif defined(__GNUC__)
// Always inlined: these helpers are also used by sources compiled for wider instruction sets, and an out-of-line copy
// from one of those could be the one that the linker keeps for everybody.
#define FLASHMLA_HD [[gnu::always_inline]] inline
#else
#define FLASHMLA_HD inline
#endif

// Before a loop that a device compiler should leave rolled: cold code costs by its length.
#if defined(__CUDACC__)
#define FLASHMLA_ROLLED _Pragma("unroll 1")
#else
#define FLASHMLA_ROLLED
#endif

namespace flashmla::core {

template <class T>
FLASHMLA_HD constexpr T ceil_div(T a, T b) {
    return (a + b - 1) / b;
}

// a / b for a >= 0, b > 0. GPUs divide 64-bit integers in a routine of a hundred instructions; most values fit 32 bits.
FLASHMLA_HD std::int64_t quotient(std::int64_t a, std::int64_t b) {
    if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
    return a / b;
}

template <class T>
FLASHMLA_HD constexpr T min_of(T a, T b) {
    return b < a ? b : a;
}

template <class T>
FLASHMLA_HD constexpr T max_of(T a, T b) {
    return a < b ? b : a;
}

}  // namespace flashmla::core
