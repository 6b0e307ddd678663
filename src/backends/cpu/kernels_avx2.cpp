// The path for AVX2 with FMA and F16C: fp32 products, 6 x 2 vectors of accumulators in the 16 registers.
#include <immintrin.h>

#include "backends/cpu/ops_f32.hpp"
#include "backends/cpu/rows.hpp"

namespace flashmla::backends::cpu {
namespace {

struct Avx2 {
    static constexpr int kLanes = 8;
    static constexpr int kPanelVectors = 2;
    static constexpr int kDepthBlock = 288;  // 16 rows x 288 x 4 B = 18 KB of queries in L1

    template <int kVectors>
    static constexpr int tile() {
        return 12 / kVectors;
    }
    static FLASHMLA_INLINE __m256 multiply_add_f32(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
    static FLASHMLA_INLINE __m256 decode_fp16(const void* from) {
        return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from)));
    }
    // Exponent and mantissa in fp16's places are the value times 2^-8.
    static FLASHMLA_INLINE __m256 decode_e4m3(const std::uint8_t* from) {
        const __m128i codes = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
        const __m128i half = _mm_and_si128(_mm_slli_epi16(codes, 7), _mm_set1_epi16(static_cast<short>(0xbf80)));
        const __m128i top = _mm_set1_epi16(0x3f80);
        const __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(_mm_and_si128(half, top), top), _mm_set1_epi16(0x7c00));
        return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(half, nan)), _mm256_set1_ps(256));
    }
    static FLASHMLA_INLINE Lanes<kLanes>::Half encode_fp16(__m256 value) {
        return reinterpret_cast<Lanes<kLanes>::Half>(
            _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
};

constexpr TileKernels kKernels = make_kernels<Fp32Ops<Avx2>>();

}  // namespace

const TileKernels* avx2_kernels() { return &kKernels; }

}  // namespace flashmla::backends::cpu
