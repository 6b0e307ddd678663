#include <immintrin.h>

#include "backends/cpu/cache_values.hpp"

namespace flashmla::backends::cpu {
namespace {

struct Avx2 {
    static constexpr int kLanes = 8;
    static FLASHMLA_INLINE __m256 decode_fp16(const std::uint16_t* from) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
    static FLASHMLA_INLINE Lanes<kLanes>::Half encode_fp16(__m256 value) {
        return reinterpret_cast<Lanes<kLanes>::Half>(
            _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    static FLASHMLA_INLINE ByteLanes<kLanes>::Byte low_bytes(Lanes<kLanes>::Uint value) {
        const auto lanes = reinterpret_cast<__m256i>(value);
        const __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
        return reinterpret_cast<ByteLanes<kLanes>::Byte>(_mm_cvtsi128_si64(_mm_packus_epi16(halves, halves)));
    }
};

constexpr CacheKernels kKernels = make_cache_kernels<Avx2>();

}  // namespace

const CacheKernels* cache_kernels_avx2() { return &kKernels; }

}  // namespace flashmla::backends::cpu
