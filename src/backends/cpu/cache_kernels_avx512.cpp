#include "backends/cpu/cache_values.hpp"
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
    static FLASHMLA_INLINE bool any_below(Words a, Words b) {
        return _mm512_cmplt_epu16_mask(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)) != 0;
    }
    static FLASHMLA_INLINE __m256i signed_codes(Words codes, Words signs) {
        return _mm512_maskz_cvtepi16_epi8(0xffffffff, reinterpret_cast<__m512i>(codes | (signs >> 8 & 0x80)));
    }
    static FLASHMLA_INLINE ByteLanes<4 * kLanes>::Byte signed_codes(Words low, Words high, Words low_signs,
                                                                    Words high_signs) {
        return reinterpret_cast<ByteLanes<4 * kLanes>::Byte>(_mm512_inserti64x4(
            _mm512_castsi256_si512(signed_codes(low, low_signs)), signed_codes(high, high_signs), 1));
    }
};

constexpr CacheKernels kKernels = make_cache_kernels<Avx512Cache>();

}  // namespace

const CacheKernels* cache_kernels_avx512() { return &kKernels; }

}  // namespace flashmla::backends::cpu
