#include <string>

#include "backends/cpu/cache_quantize.hpp"
#include "backends/cpu/isa_plain.hpp"
#include "core/cpu_isa.hpp"

namespace flashmla::backends::cpu {
namespace {

struct Tag {};
constexpr CacheKernels kKernels = make_cache_kernels<Plain<Tag, 4>>();

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
