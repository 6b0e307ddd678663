// What the AVX2 paths of the CPU kernels share. Only for translation units compiled with AVX2, FMA and F16C flags.
#pragma once

#include <immintrin.h>

#include "backends/cpu/fp8_vector.hpp"

namespace flashmla::backends::cpu {

// Tag keeps the instantiations of the translation units apart (see vector.hpp).
template <class Tag>
struct Avx2 {
    static constexpr int kLanes = 8;
    static constexpr bool kFused = true;

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
    // Lanes below 256 as bytes (the compiler's own conversion goes through eight scalar registers).
    static FLASHMLA_INLINE ByteLanes<kLanes>::Byte low_bytes(Lanes<kLanes>::Uint value) {
        const auto lanes = reinterpret_cast<__m256i>(value);
        const __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
        return reinterpret_cast<ByteLanes<kLanes>::Byte>(_mm_cvtsi128_si64(_mm_packus_epi16(halves, halves)));
    }
    static FLASHMLA_INLINE Lanes<2 * kLanes>::Half pack(Lanes<kLanes>::Uint low, Lanes<kLanes>::Uint high) {
        const __m256i words = _mm256_packus_epi32(reinterpret_cast<__m256i>(low), reinterpret_cast<__m256i>(high));
        return reinterpret_cast<Lanes<2 * kLanes>::Half>(_mm256_permute4x64_epi64(words, 0xd8));
    }
    using Words = Lanes<2 * kLanes>::Half;
    // The instruction looks for the smallest of eight.
    static FLASHMLA_INLINE std::uint16_t largest_word(Words words) {
        const auto lanes = reinterpret_cast<__m256i>(words);
        const __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
        const __m128i smallest = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(-1)));
        return static_cast<std::uint16_t>(~_mm_cvtsi128_si32(smallest));
    }
    // Packing takes the two halves of registers apart: bytes are in order again when the middle quarters change places.
    using WideBytes = ByteLanes<4 * kLanes>::Byte;
    static FLASHMLA_INLINE WideBytes pack_bytes(Words low, Words high) {
        return reinterpret_cast<WideBytes>(
            _mm256_packus_epi16(reinterpret_cast<__m256i>(low), reinterpret_cast<__m256i>(high)));
    }
    // Saturation keeps signs.
    static FLASHMLA_INLINE WideBytes pack_signs(Words low, Words high) {
        return reinterpret_cast<WideBytes>(
                   _mm256_packs_epi16(reinterpret_cast<__m256i>(low), reinterpret_cast<__m256i>(high))) &
               0x80;
    }
    static FLASHMLA_INLINE WideBytes in_order(WideBytes bytes) {
        return reinterpret_cast<WideBytes>(_mm256_permute4x64_epi64(reinterpret_cast<__m256i>(bytes), 0xd8));
    }
    static FLASHMLA_INLINE WideBytes repeated(const std::uint8_t* bytes) {
        return reinterpret_cast<WideBytes>(
            _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
    }
    static FLASHMLA_INLINE WideBytes look_up(WideBytes table, WideBytes indices) {
        return reinterpret_cast<WideBytes>(
            _mm256_shuffle_epi8(reinterpret_cast<__m256i>(table), reinterpret_cast<__m256i>(indices)));
    }
    static FLASHMLA_INLINE bool any(WideBytes bytes) {
        const auto lanes = reinterpret_cast<__m256i>(bytes);
        return _mm256_testz_si256(lanes, lanes) == 0;
    }
};

}  // namespace flashmla::backends::cpu
