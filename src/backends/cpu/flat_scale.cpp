#include "backends/cpu/cache_kernels.hpp"
#include "core/float_formats.hpp"

namespace flashmla::backends::cpu {

FlatScale flat_scale(const CacheKernels& kernels, float scale) {
    FlatScale result{.value = scale};
    const std::uint32_t bits = core::float_bits(scale);
    const bool power_of_two = (bits & 0x7fffff) == 0;
    // Where all octaves that have codes are octaves of normal numbers. Powers of two have a faster way.
    if (!(scale >= 0x1p-100f && scale <= 0x1p100f) || power_of_two) return result;
    const std::uint32_t exponent = bits >> 23;
    std::uint16_t octave[128];  // quotients are 0.5 to 2: codes are 48 to 64
    for (std::uint32_t i = 0; i < 128; ++i) octave[i] = static_cast<std::uint16_t>(exponent << 7 | i);
    std::uint8_t codes[128];
    kernels.quantize(DType::kBFloat16, reinterpret_cast<const std::uint8_t*>(octave), 128, result, codes);
    constexpr int kFirstCode = 48;
    for (int i = 0; i < 16; ++i) {
        const std::uint8_t* eight = codes + 8 * i;
        int next = 0;
        for (int j = 1; j < 8; ++j) next += eight[j] - eight[0];
        result.steps[i] = static_cast<std::uint8_t>(8 * (eight[0] - kFirstCode) + next);
    }
    result.first_exponent = static_cast<std::uint8_t>(exponent - kFirstCode / 8);
    result.has_steps = true;
    return result;
}

}  // namespace flashmla::backends::cpu
