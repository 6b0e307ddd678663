// What both AVX-512 paths share. Only for translation units compiled with AVX-512 flags.
#pragma once

#include <immintrin.h>

#include "backends/cpu/vector.hpp"

namespace flashmla::backends::cpu {

// Tag keeps the instantiations of the two translation units apart (see vector.hpp).
template <class Tag>
struct Avx512 {
    static constexpr int kLanes = 16;
    static constexpr bool kFused = true;
    static constexpr int kPanelVectors = 2;

    template <int kVectors>
    static constexpr int tile() {
        return 12;  // 12 x 2 accumulators, 2 rows of B and a broadcast: 27 of 32 registers
    }
    static FLASHMLA_INLINE __m512 multiply_add_f32(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
    // The zero-masked forms with every lane on: GCC 12 warns about its own header inside the plain ones.
    static FLASHMLA_INLINE __m512 decode_fp16(const void* from) {
        return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(static_cast<const __m256i*>(from)));
    }
    // Exponent and mantissa in fp16's places are the value times 2^-8.
    static FLASHMLA_INLINE __m512 decode_e4m3(const std::uint8_t* from) {
        const __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
        const __m256i half =
            _mm256_and_si256(_mm256_slli_epi16(codes, 7), _mm256_set1_epi16(static_cast<short>(0xbf80)));
        const __m256i top = _mm256_set1_epi16(0x3f80);
        const __m256i nan =
            _mm256_and_si256(_mm256_cmpeq_epi16(_mm256_and_si256(half, top), top), _mm256_set1_epi16(0x7c00));
        return _mm512_mul_ps(_mm512_maskz_cvtph_ps(0xffff, _mm256_or_si256(half, nan)), _mm512_set1_ps(256));
    }
    static FLASHMLA_INLINE Lanes<kLanes>::Half encode_fp16(__m512 value) {
        return reinterpret_cast<Lanes<kLanes>::Half>(
            _mm512_maskz_cvtps_ph(0xffff, value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
};

}  // namespace flashmla::backends::cpu
