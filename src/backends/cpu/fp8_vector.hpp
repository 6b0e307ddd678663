// e4m3 codes and vectors of fp32, to the bit as core/float_formats.hpp converts them (a NaN's payload apart).
#pragma once

#include "backends/cpu/vector.hpp"

namespace flashmla::backends::cpu {

template <int kLanes>
struct ByteLanes {
    typedef std::uint8_t Byte __attribute__((vector_size(kLanes)));
};

template <class Ops>
using Bytes = typename ByteLanes<Ops::kLanes>::Byte;

template <class Ops>
FLASHMLA_INLINE Float<Ops> decode_e4m3(const std::uint8_t* from) {
    const Uint<Ops> code = __builtin_convertvector(load<Bytes<Ops>>(from), Uint<Ops>);
    const Uint<Ops> magnitude = code & 0x7f;
    // Exponent and mantissa moved into fp32's places are the value times 2^-120, also for subnormals.
    const Float<Ops> value = reinterpret_cast<Float<Ops>>(magnitude << 20) * splat<Ops>(0x1p120f);
    const Uint<Ops> nan = reinterpret_cast<Uint<Ops>>(magnitude == 0x7f) & 0x7fc00000u;
    return reinterpret_cast<Float<Ops>>(reinterpret_cast<Uint<Ops>>(value) | nan | (code & 0x80) << 24);
}

// Exponent bits, as fp32 has them, of the smallest normal code. The subnormal codes share its units.
inline constexpr std::int32_t kSmallestE4m3Exponent = (127 - 6) << 23;

// Nearest, ties to even, saturating. Ops::low_bytes turns lanes below 256 into bytes (the compiler's own conversion
// goes through eight scalar registers).
template <class Ops>
FLASHMLA_INLINE Bytes<Ops> encode_e4m3(Float<Ops> value) {
    constexpr std::int32_t kLargest = 0x43e00000;  // 448
    const Int<Ops> bits = reinterpret_cast<Int<Ops>>(value);
    Int<Ops> magnitude = bits & 0x7fffffff;
    magnitude = magnitude > kLargest ? Int<Ops>{} + kLargest : magnitude;
    Int<Ops> exponent = magnitude & 0x7f800000;
    exponent = exponent > kSmallestE4m3Exponent ? exponent : Int<Ops>{} + kSmallestE4m3Exponent;
    // A power of two 2^20 above the value's: adding it leaves the value, rounded to units of an eighth of 2^exponent,
    // in the low mantissa bits: 8 to 16 of them for a normal code, up to 8 for a subnormal one.
    const Int<Ops> shifter = exponent + (20 << 23);
    const Float<Ops> sum = reinterpret_cast<Float<Ops>>(magnitude) + reinterpret_cast<Float<Ops>>(shifter);
    const Int<Ops> units = reinterpret_cast<Int<Ops>>(sum) - shifter;
    Int<Ops> code = units + ((exponent - kSmallestE4m3Exponent) >> 20);
    code = value == value ? code : Int<Ops>{} + 0x7f;
    return Ops::low_bytes(reinterpret_cast<Uint<Ops>>(code | ((bits >> 24) & 0x80)));
}

}  // namespace flashmla::backends::cpu
