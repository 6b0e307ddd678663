// WGMMA on plain register arrays and shared-memory tiles, over CuTe's instruction wrappers.
//
// A tile is 64 rows of 128 bytes (64 16-bit columns) in the 128-byte swizzle, 8,192 bytes, aligned to 1,024. It serves
// as a K-major operand (rows = M or N, columns = K) and as an MN-major B operand (rows = K, columns = N).
#pragma once

#include <cutlass/numeric_types.h>
#include <cute/arch/copy_sm75.hpp>
#include <cute/arch/copy_sm90.hpp>
#include <cute/arch/mma_sm90_gmma.hpp>

#include <cstdint>
#include <utility>

namespace flashmla::gpu {

inline constexpr int kTileBytes = 8192;
inline constexpr int kTileRowBytes = 128;

// Matrix descriptor (PTX ISA, "wgmma matrix descriptor format"): address, leading and stride byte offsets in units of
// 16 bytes, 128-byte swizzle. The high half is the same for every tile: groups of 8 rows are 1,024 bytes apart. Only
// the low half is held in a register.
struct Descriptor {
    std::uint32_t low;

    __device__ __forceinline__ std::uint64_t at(std::uint32_t offset_16_bytes) const {
        constexpr std::uint64_t kHigh = std::uint64_t{1024 >> 4} << 32 | std::uint64_t{1} << 62;
        return kHigh | (low + offset_16_bytes);
    }
};

// K-major operand; step k of 16 columns begins 32 bytes further.
__device__ __forceinline__ Descriptor k_major(const void* tile) {
    constexpr std::uint32_t kUnused = 1 << 16;
    return {(cute::cast_smem_ptr_to_uint(tile) & 0x3FFFF) >> 4 | kUnused};
}
inline constexpr std::uint32_t kKMajorStep = 32 >> 4;

// MN-major B operand of 128 columns: two tiles side by side in N, 8,192 bytes apart; step k of 16 rows begins 2,048
// bytes further.
__device__ __forceinline__ Descriptor mn_major_pair(const void* tiles) {
    constexpr std::uint32_t kBetweenTiles = (kTileBytes >> 4) << 16;
    return {(cute::cast_smem_ptr_to_uint(tiles) & 0x3FFFF) >> 4 | kBetweenTiles};
}
inline constexpr std::uint32_t kMnMajorStep = 2048 >> 4;

template <class Element>
struct WgmmaAtoms;

template <>
struct WgmmaAtoms<cutlass::bfloat16_t> {
    using Ss64 = cute::SM90::GMMA::MMA_64x64x16_F32BF16BF16_SS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K>;
    using Rs64 = cute::SM90::GMMA::MMA_64x64x16_F32BF16BF16_RS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K>;
    using Ss128 =
        cute::SM90::GMMA::MMA_64x128x16_F32BF16BF16_SS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::MN>;
};

template <>
struct WgmmaAtoms<cutlass::half_t> {
    using Ss64 = cute::SM90::GMMA::MMA_64x64x16_F32F16F16_SS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K>;
    using Rs64 = cute::SM90::GMMA::MMA_64x64x16_F32F16F16_RS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K>;
    using Ss128 = cute::SM90::GMMA::MMA_64x128x16_F32F16F16_SS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::MN>;
};

namespace detail {
template <class Atom, int N, std::size_t... I>
__device__ __forceinline__ void fma_ss(std::uint64_t a, std::uint64_t b, float (&d)[N], bool accumulate,
                                       std::index_sequence<I...>) {
    Atom::fma(a, b, d[I]..., accumulate ? cute::SM90::GMMA::ScaleOut::One : cute::SM90::GMMA::ScaleOut::Zero);
}
template <class Atom, int N, std::size_t... I>
__device__ __forceinline__ void fma_rs(const std::uint32_t* a, std::uint64_t b, float (&d)[N], bool accumulate,
                                       std::index_sequence<I...>) {
    Atom::fma(a[0], a[1], a[2], a[3], b, d[I]...,
              accumulate ? cute::SM90::GMMA::ScaleOut::One : cute::SM90::GMMA::ScaleOut::Zero);
}
}  // namespace detail

// d (+)= A B^T for one 16-deep step; A in shared memory.
template <class Atom, int N>
__device__ __forceinline__ void wgmma_ss(std::uint64_t a, std::uint64_t b, float (&d)[N], bool accumulate) {
    detail::fma_ss<Atom>(a, b, d, accumulate, std::make_index_sequence<N>{});
}

// The same with A in registers (4 words a thread).
template <class Atom, int N>
__device__ __forceinline__ void wgmma_rs(const std::uint32_t* a, std::uint64_t b, float (&d)[N], bool accumulate) {
    detail::fma_rs<Atom>(a, b, d, accumulate, std::make_index_sequence<N>{});
}

template <int N>
__device__ __forceinline__ void fence_registers(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Byte offset of (row, 16-byte chunk) in a swizzled tile.
__device__ __forceinline__ int tile_offset(int row, int chunk) {
    return row * kTileRowBytes + ((chunk ^ (row & 7)) << 4);
}

// Where lane `lane` of the warp that owns rows [16 * warp, 16 * warp + 16) points for a 16x16 stmatrix / ldmatrix of
// columns [16 * step, 16 * step + 16): the layout of a WGMMA accumulator, and of a register A operand.
__device__ __forceinline__ int fragment_offset(int warp, int lane, int step) {
    // The step only flips bits of the chunk, so one base address serves all steps.
    return tile_offset(16 * warp + (lane & 15), lane >> 4) ^ (step << 5);
}

__device__ __forceinline__ void load_fragment(const void* address, std::uint32_t (&f)[4]) {
    cute::SM75_U32x4_LDSM_N::copy(*static_cast<const cute::uint128_t*>(address), f[0], f[1], f[2], f[3]);
}

__device__ __forceinline__ void store_fragment(void* address, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                               std::uint32_t d) {
    cute::SM90_U32x4_STSM_N::copy(a, b, c, d, *static_cast<cute::uint128_t*>(address));
}

// Two fp32 values to a pair of 16-bit ones, the first in the low half, rounded to nearest even.
template <class Element>
__device__ __forceinline__ std::uint32_t pack(float low, float high);

template <>
__device__ __forceinline__ std::uint32_t pack<cutlass::bfloat16_t>(float low, float high) {
    std::uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

template <>
__device__ __forceinline__ std::uint32_t pack<cutlass::half_t>(float low, float high) {
    std::uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

}  // namespace flashmla::gpu
