#include "backends/cpu/cache_quantize.hpp"
#include "backends/cpu/isa_avx512.hpp"

namespace flashmla::backends::cpu {
namespace {

struct Tag {};

struct Avx512Cache : Avx512<Tag> {
    static FLASHMLA_INLINE ByteLanes<kLanes>::Byte low_bytes(Lanes<kLanes>::Uint value) {
        return reinterpret_cast<ByteLanes<kLanes>::Byte>(
            _mm512_maskz_cvtepi32_epi8(0xffff, reinterpret_cast<__m512i>(value)));
    }
    static FLASHMLA_INLINE Lanes<2 * kLanes>::Half pack(Lanes<kLanes>::Uint low, Lanes<kLanes>::Uint high) {
        return reinterpret_cast<Lanes<2 * kLanes>::Half>(_mm512_inserti64x4(
            _mm512_castsi256_si512(_mm512_maskz_cvtepi32_epi16(0xffff, reinterpret_cast<__m512i>(low))),
            _mm512_maskz_cvtepi32_epi16(0xffff, reinterpret_cast<__m512i>(high)), 1));
    }
    using Words = Lanes<2 * kLanes>::Half;
    // The instruction looks for the smallest of eight.
    static FLASHMLA_INLINE std::uint16_t largest_word(Words words) {
        const auto lanes = reinterpret_cast<__m512i>(words);
        const __m256i sixteen = _mm256_max_epu16(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
        const __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(sixteen), _mm256_extracti128_si256(sixteen, 1));
        const __m128i smallest = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(-1)));
        return static_cast<std::uint16_t>(~_mm_cvtsi128_si32(smallest));
    }
    // Packing takes the quarters of registers apart.
    using WideBytes = ByteLanes<4 * kLanes>::Byte;
    static FLASHMLA_INLINE WideBytes pack_bytes(Words low, Words high) {
        return reinterpret_cast<WideBytes>(
            _mm512_packus_epi16(reinterpret_cast<__m512i>(low), reinterpret_cast<__m512i>(high)));
    }
    // Saturation keeps signs.
    static FLASHMLA_INLINE WideBytes pack_signs(Words low, Words high) {
        return reinterpret_cast<WideBytes>(
                   _mm512_packs_epi16(reinterpret_cast<__m512i>(low), reinterpret_cast<__m512i>(high))) &
               0x80;
    }
    static FLASHMLA_INLINE WideBytes in_order(WideBytes bytes) {
        const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
        return reinterpret_cast<WideBytes>(
            _mm512_maskz_permutexvar_epi64(0xff, order, reinterpret_cast<__m512i>(bytes)));
    }
    static FLASHMLA_INLINE WideBytes repeated(const std::uint8_t* bytes) {
        return reinterpret_cast<WideBytes>(
            _mm512_maskz_broadcast_i32x4(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
    }
    static FLASHMLA_INLINE WideBytes look_up(WideBytes table, WideBytes indices) {
        return reinterpret_cast<WideBytes>(
            _mm512_shuffle_epi8(reinterpret_cast<__m512i>(table), reinterpret_cast<__m512i>(indices)));
    }
    static FLASHMLA_INLINE bool any(WideBytes bytes) {
        const auto lanes = reinterpret_cast<__m512i>(bytes);
        return _mm512_test_epi8_mask(lanes, lanes) != 0;
    }
};

constexpr CacheKernels kKernels = make_cache_kernels<Avx512Cache>();

}  // namespace

const CacheKernels* cache_kernels_avx512() { return &kKernels; }

}  // namespace flashmla::backends::cpu
