// The quantiser of the fp8 cache formats: from fp32 values to scales and e4m3 codes (docs/kv_formats.md).
//
// scale = max(amax / 448, 1e-4), where amax is the largest finite magnitude of the group; rounded up to a power of two
// where the format or the caller wants it. A value's code is e4m3(x / scale): nearest, ties to even, saturating. NaN
// and infinity take no part in amax, so that they cannot cost the other values of their group anything: a NaN becomes
// the NaN code, an infinity +-448, which reads back as about the largest finite value of the group.
#pragma once

#include <cstdint>

#include "core/float_formats.hpp"
#include "core/host_device.hpp"
#include "core/kv_record.hpp"

namespace flashmla::core {

inline constexpr float kE4m3Max = 448;
inline constexpr float kSmallestScale = 1e-4f;

// Of a positive normal float, by its exponent bits. A power of two stays as it is.
FLASHMLA_HD constexpr float round_up_to_power_of_two(float value) {
    constexpr std::uint32_t kMantissa = (std::uint32_t{1} << 23) - 1;
    return float_from_bits((float_bits(value) + kMantissa) & ~kMantissa);
}

// The scale of a group whose largest finite magnitude is `amax`.
FLASHMLA_HD constexpr float quantizer_scale(float amax, bool power_of_two) {
    const float scale = max_of(amax / kE4m3Max, kSmallestScale);
    return power_of_two ? round_up_to_power_of_two(scale) : scale;
}

FLASHMLA_HD constexpr std::uint8_t quantize(float value, float scale) { return float_to_e4m3(value / scale); }

// The larger of `amax` and a value's magnitude; NaN and infinity count as 0.
FLASHMLA_HD constexpr float larger_finite(float amax, float value) {
    const std::uint32_t magnitude = float_bits(value) & kFloatMagnitude;
    return magnitude < kFloatInfinity ? max_of(amax, float_from_bits(magnitude)) : amax;
}

// The e8m0 code of a power of two that quantizer_scale made.
FLASHMLA_HD constexpr std::uint8_t power_of_two_to_e8m0(float value) {
    return static_cast<std::uint8_t>(float_bits(value) >> 23);
}

FLASHMLA_HD void store_scale(CacheFormat format, std::uint8_t* scales, int group, float scale) {
    if (format == CacheFormat::kFp8_584) {
        scales[group] = power_of_two_to_e8m0(scale);
    } else {
        store_unaligned(scales + group * sizeof(float), scale);
    }
}

// fp8_584 has a byte left beside its seven scales. It belongs to the token, is written as zero and never read.
FLASHMLA_HD void store_pad(CacheFormat format, std::uint8_t* scales) {
    if (format == CacheFormat::kFp8_584) scales[kv584::kScaleBytes - 1] = 0;
}

// Whether a record's scales are powers of two, given what the caller asked for.
FLASHMLA_HD constexpr bool uses_power_of_two(CacheFormat format, bool asked) {
    return asked || format == CacheFormat::kFp8_584;
}

// One whole record from d_qk fp32 values, value by value: the meaning that faster encoders reproduce to the bit.
FLASHMLA_HD void encode_record(CacheFormat format, const float* from, int d_qk, bool power_of_two, float flat_scale,
                               const RecordParts<std::uint8_t>& parts) {
    const RecordShape shape = record_shape(format, d_qk);
    if (!shape.e4m3) {
        const DType dtype = format == CacheFormat::kBFloat16 ? DType::kBFloat16 : DType::kFloat16;
        for (int i = 0; i < d_qk; ++i) store_unaligned(parts.values + 2 * i, encode_16bit(dtype, from[i]));
        return;
    }
    if (shape.group == 0) {
        for (int i = 0; i < d_qk; ++i) parts.values[i] = quantize(from[i], flat_scale);
        return;
    }
    for (int group = 0; group < shape.groups(); ++group) {
        const int begin = group * shape.group;
        float amax = 0;
        for (int i = begin; i < begin + shape.group; ++i) amax = larger_finite(amax, from[i]);
        const float scale = quantizer_scale(amax, uses_power_of_two(format, power_of_two));
        for (int i = begin; i < begin + shape.group; ++i) parts.values[i] = quantize(from[i], scale);
        store_scale(format, parts.scales, group, scale);
    }
    store_pad(format, parts.scales);
    for (int i = 0; i < shape.rope; ++i) store_unaligned(parts.rope + 2 * i, float_to_bf16(from[shape.values + i]));
}

}  // namespace flashmla::core
