// Which CPU code path this machine can run, and which one was asked for.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "flashmla/status.hpp"

namespace flashmla::core {

// Narrowest first, so that `<=` means "this machine can run it too".
enum class CpuIsa : std::uint8_t { kPortable, kAvx2, kAvx512, kAvx512Bf16 };

inline constexpr CpuIsa kAllCpuIsas[] = {CpuIsa::kAvx512Bf16, CpuIsa::kAvx512, CpuIsa::kAvx2, CpuIsa::kPortable};

constexpr const char* name(CpuIsa isa) {
    switch (isa) {
        case CpuIsa::kPortable: return "portable";
        case CpuIsa::kAvx2: return "avx2";
        case CpuIsa::kAvx512: return "avx512";
        case CpuIsa::kAvx512Bf16: return "avx512_bf16";
    }
    return "unknown";
}

// The widest path that the hardware and the operating system allow. avx2 includes FMA (and F16C, which every
// CPU with AVX2 has); avx512 includes F, BW, DQ, VL.
inline CpuIsa detect_cpu_isa() {
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512 && __builtin_cpu_supports("avx512bf16")) return CpuIsa::kAvx512Bf16;
    if (avx512) return CpuIsa::kAvx512;
    if (avx2) return CpuIsa::kAvx2;
#endif
    return CpuIsa::kPortable;
}

// The path to take: FLASHMLA_CPU_ISA when set, else the widest. Asking for one that this machine lacks is an error, so
// that a test which forces a path never passes on another one.
inline Result<CpuIsa> selected_cpu_isa() {
    const CpuIsa widest = detect_cpu_isa();
    const char* wanted = std::getenv("FLASHMLA_CPU_ISA");
    if (wanted == nullptr || *wanted == '\0') return widest;
    for (CpuIsa isa : kAllCpuIsas) {
        if (std::string_view(wanted) != name(isa)) continue;
        if (isa <= widest) return isa;
        return unsupported(std::string("FLASHMLA_CPU_ISA: got ") + wanted + ", but this CPU runs at most " +
                           name(widest));
    }
    return invalid_argument(std::string("FLASHMLA_CPU_ISA: got '") + wanted +
                            "', wanted avx512_bf16, avx512, avx2 or portable");
}

}  // namespace flashmla::core
