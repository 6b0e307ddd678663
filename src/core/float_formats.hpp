// The 16-bit and 8-bit floating-point formats of the library, to and from fp32, on the host (CPU kernels, oracle,
// tests).
//
// Decoding is exact. Encoding rounds to nearest, ties to even; NaN stays NaN. Infinity: bf16 and fp16 keep it (and
// round to it past their largest value), e4m3 has none and saturates at +-448, e8m0 has neither sign, zero nor infinity
// (see there).
#pragma once

#include <cstdint>

#include "core/host_device.hpp"
#include "flashmla/types.hpp"

namespace flashmla::core {

FLASHMLA_HD constexpr std::uint32_t float_bits(float value) { return __builtin_bit_cast(std::uint32_t, value); }
FLASHMLA_HD constexpr float float_from_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline constexpr std::uint32_t kFloatMagnitude = 0x7fffffff;
inline constexpr std::uint32_t kFloatInfinity = 0x7f800000;

// ---- bf16: 1 sign, 8 exponent, 7 mantissa bits

FLASHMLA_HD constexpr float bf16_to_float(std::uint16_t code) { return float_from_bits(std::uint32_t{code} << 16); }

FLASHMLA_HD constexpr std::uint16_t float_to_bf16(float value) {
    const std::uint32_t bits = float_bits(value);
    if ((bits & kFloatMagnitude) > kFloatInfinity) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
    return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// ---- Formats with a narrow exponent: shared rounding

struct Fp16Format {
    static constexpr int kMantissaBits = 10;
    static constexpr int kBias = 15;
    static constexpr std::uint32_t kOverflow = 0x7c00;  // the code for everything past the largest value: infinity
    static constexpr std::uint32_t kNan = 0x7e00;
};

struct E4m3Format {
    static constexpr int kMantissaBits = 3;
    static constexpr int kBias = 7;
    static constexpr std::uint32_t kOverflow = 0x7e;  // 448
    static constexpr std::uint32_t kNan = 0x7f;
};

// The code, without sign, of a magnitude given as fp32 bits.
template <class Format>
FLASHMLA_HD constexpr std::uint32_t encode_magnitude(std::uint32_t magnitude) {
    constexpr int kDropped = 23 - Format::kMantissaBits;
    constexpr std::uint32_t kSmallestNormal = std::uint32_t{127 - Format::kBias + 1} << 23;
    if (magnitude > kFloatInfinity) return Format::kNan;
    if (magnitude < kSmallestNormal) {
        // Adding 2^23 subnormal units leaves the value in units, rounded by the fp32 addition itself, in the low
        // mantissa bits.
        constexpr std::uint32_t kUnits = std::uint32_t{127 - Format::kBias + 1 + kDropped} << 23;
        return float_bits(float_from_bits(magnitude) + float_from_bits(kUnits)) - kUnits;
    }
    const std::uint32_t rounded = magnitude + (std::uint32_t{1} << (kDropped - 1)) - 1 + ((magnitude >> kDropped) & 1);
    return min_of((rounded - kSmallestNormal + (std::uint32_t{1} << 23)) >> kDropped, Format::kOverflow);
}

// ---- fp16: IEEE binary16

FLASHMLA_HD constexpr float fp16_to_float(std::uint16_t code) {
    // The mantissa and exponent moved into fp32's places are the value times 2^-112, also for subnormals.
    const float magnitude = float_from_bits((std::uint32_t{code} & 0x7fff) << 13) * 0x1p112f;
    const std::uint32_t special = (code & 0x7c00) == 0x7c00 ? kFloatInfinity : 0;
    return float_from_bits(float_bits(magnitude) | special | (std::uint32_t{code} & 0x8000) << 16);
}

FLASHMLA_HD constexpr std::uint16_t float_to_fp16(float value) {
    const std::uint32_t bits = float_bits(value);
    return static_cast<std::uint16_t>(encode_magnitude<Fp16Format>(bits & kFloatMagnitude) | ((bits >> 16) & 0x8000));
}

// ---- e4m3 (the "fn" variant): 1 sign, 4 exponent, 3 mantissa bits, largest value 448, one NaN a sign, no infinity

FLASHMLA_HD constexpr float e4m3_to_float(std::uint8_t code) {
    if ((code & 0x7f) == 0x7f) return float_from_bits(kFloatInfinity | 0x400000 | (std::uint32_t{code} & 0x80) << 24);
    const float magnitude = float_from_bits((std::uint32_t{code} & 0x7f) << 20) * 0x1p120f;
    return float_from_bits(float_bits(magnitude) | (std::uint32_t{code} & 0x80) << 24);
}

// Saturating: infinities and everything past 448 become +-448.
FLASHMLA_HD constexpr std::uint8_t float_to_e4m3(float value) {
    const std::uint32_t bits = float_bits(value);
    return static_cast<std::uint8_t>(encode_magnitude<E4m3Format>(bits & kFloatMagnitude) | ((bits >> 24) & 0x80));
}

// ---- e8m0: the power of two 2^(code - 127); 255 is NaN

FLASHMLA_HD constexpr float e8m0_to_float(std::uint8_t code) {
    if (code == 0) return 0x1p-127f;
    return float_from_bits(code == 255 ? kFloatInfinity | 0x400000 : std::uint32_t{code} << 23);
}

// The nearest power of two; 1.5 * 2^e lies between two and goes up. Positive values below 2^-127 give 2^-127. Zero,
// negative values, infinity and what rounds past 2^127 have no code near them and give NaN.
FLASHMLA_HD constexpr std::uint8_t float_to_e8m0(float value) {
    const std::uint32_t bits = float_bits(value);
    if (bits == 0 || bits >= kFloatInfinity) return 255;
    if (bits < 0x400000) return 0;  // below 2^-127
    if (bits < 0x800000) return bits < 0x600000 ? 0 : 1;
    return static_cast<std::uint8_t>((bits + 0x400000) >> 23);
}

// ---- By DType, for the two 16-bit types of the caches

FLASHMLA_HD constexpr float decode_16bit(DType dtype, std::uint16_t code) {
    return dtype == DType::kBFloat16 ? bf16_to_float(code) : fp16_to_float(code);
}

FLASHMLA_HD constexpr std::uint16_t encode_16bit(DType dtype, float value) {
    return dtype == DType::kBFloat16 ? float_to_bf16(value) : float_to_fp16(value);
}

// Largest relative error of rounding to the type (half the spacing above 1), away from underflow.
constexpr double unit_roundoff(DType dtype) {
    switch (dtype) {
        case DType::kBFloat16: return 0x1p-8;
        case DType::kFloat16: return 0x1p-11;
        case DType::kFloat32: return 0x1p-24;
        case DType::kFloat8E4m3: return 0x1p-4;
        case DType::kInt32:
        case DType::kUInt8:
        case DType::kInt64: return 0;
    }
    return 0;
}

// Largest absolute error of rounding to the type near zero; bf16 and fp32 are taken to flush subnormals, which hardware
// may do.
constexpr double underflow_error(DType dtype) { return dtype == DType::kFloat16 ? 0x1p-25 : 0x1p-126; }

}  // namespace flashmla::core
