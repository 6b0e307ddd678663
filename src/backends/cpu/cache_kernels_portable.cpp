#include <string>

#include "backends/cpu/cache_values.hpp"
#include "core/cpu_isa.hpp"

namespace flashmla::backends::cpu {
namespace {

struct Portable {
    static constexpr int kLanes = 4;
    static Lanes<kLanes>::Float decode_fp16(const std::uint16_t* from) {
        Lanes<kLanes>::Float v;
        for (int i = 0; i < kLanes; ++i) v[i] = core::fp16_to_float(from[i]);
        return v;
    }
    static Lanes<kLanes>::Half encode_fp16(Lanes<kLanes>::Float value) {
        Lanes<kLanes>::Half v;
        for (int i = 0; i < kLanes; ++i) v[i] = core::float_to_fp16(value[i]);
        return v;
    }
    static ByteLanes<kLanes>::Byte low_bytes(Lanes<kLanes>::Uint value) {
        return __builtin_convertvector(value, ByteLanes<kLanes>::Byte);
    }
};

constexpr CacheKernels kKernels = make_cache_kernels<Portable>();

}  // namespace

const CacheKernels* cache_kernels_portable() { return &kKernels; }

Result<const CacheKernels*> select_cache_kernels() {
    const Result<core::CpuIsa> isa = core::selected_cpu_isa();
    if (!isa.ok()) return isa.status();
#if defined(FLASHMLA_CPU_AVX512)
    if (isa.value() >= core::CpuIsa::kAvx512) return cache_kernels_avx512();
#endif
#if defined(FLASHMLA_CPU_AVX2)
    if (isa.value() >= core::CpuIsa::kAvx2) return cache_kernels_avx2();
#endif
    return cache_kernels_portable();
}

}  // namespace flashmla::backends::cpu
