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
};

constexpr CacheKernels kKernels = make_cache_kernels<Avx512Cache>();

}  // namespace

const CacheKernels* cache_kernels_avx512() { return &kKernels; }

}  // namespace flashmla::backends::cpu
