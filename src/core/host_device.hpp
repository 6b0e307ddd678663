// One spelling for code that runs on both sides: plain C++ under a host compiler, __host__ __device__ under nvcc.
#pragma once

#if defined(__CUDACC__)
#define FLASHMLA_HD __host__ __device__ __forceinline__
#elif defined(__GNUC__)
// Always inlined: these helpers are also used by sources compiled for wider instruction sets, and an out-of-line copy
// from one of those could be the one that the linker keeps for everybody.
#define FLASHMLA_HD [[gnu::always_inline]] inline
#else
#define FLASHMLA_HD inline
#endif

namespace flashmla::core {

template <class T>
FLASHMLA_HD constexpr T ceil_div(T a, T b) {
    return (a + b - 1) / b;
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
