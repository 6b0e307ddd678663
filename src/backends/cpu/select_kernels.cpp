#include "backends/cpu/select_kernels.hpp"

#include <string>

#include "core/cpu_isa.hpp"

namespace flashmla::backends::cpu {
namespace {

// Null when the path is not compiled in.
const TileKernels* kernels_of(core::CpuIsa isa, [[maybe_unused]] DType products) {
    switch (isa) {
#if defined(FLASHMLA_CPU_AVX512_BF16)
        case core::CpuIsa::kAvx512Bf16: return products == DType::kBFloat16 ? avx512_bf16_kernels() : avx512_kernels();
#endif
#if defined(FLASHMLA_CPU_AVX512)
        case core::CpuIsa::kAvx512: return avx512_kernels();
#endif
#if defined(FLASHMLA_CPU_AVX2)
        case core::CpuIsa::kAvx2: return avx2_kernels();
#endif
        case core::CpuIsa::kPortable: return portable_kernels();
        default: return nullptr;
    }
}

}  // namespace

DType product_type(const DecodeShape& shape) {
    const bool exact = shape.dtype != DType::kFloat16 && shape.format != CacheFormat::kFp8_656;
    return exact ? DType::kBFloat16 : DType::kFloat32;
}

Result<const TileKernels*> select_kernels(DType products) {
    const Result<core::CpuIsa> wanted = core::selected_cpu_isa();
    if (!wanted.ok()) return wanted.status();
    if (const TileKernels* kernels = kernels_of(wanted.value(), products)) return kernels;
    if (std::getenv("FLASHMLA_CPU_ISA") != nullptr) {
        return unsupported(std::string("FLASHMLA_CPU_ISA: got ") + core::name(wanted.value()) +
                           ", which the compiler of this build could not make");
    }
    for (core::CpuIsa isa : core::kAllCpuIsas) {
        if (isa > wanted.value()) continue;
        if (const TileKernels* kernels = kernels_of(isa, products)) return kernels;
    }
    return portable_kernels();
}

}  // namespace flashmla::backends::cpu
