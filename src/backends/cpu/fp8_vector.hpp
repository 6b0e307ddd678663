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

// Nearest, ties to even, saturating. Ops::low_bytes turns lanes below 256 into bytes (the compiler's own conversion
// goes through eight scalar registers).
template <class Ops>
FLASHMLA_INLINE Bytes<Ops> encode_e4m3(Float<Ops> value) {
    constexpr std::uint32_t kSmallestNormal = std::uint32_t{127 - 6} << 23;  // 2^-6
    constexpr std::uint32_t kUnits = std::uint32_t{127 + 14} << 23;          // 2^14, whose last place is 2^-9
    const Uint<Ops> bits = reinterpret_cast<Uint<Ops>>(value);
    const Uint<Ops> magnitude = bits & 0x7fffffffu;
    const Float<Ops> shifted = reinterpret_cast<Float<Ops>>(magnitude) + splat<Ops>(0x1p14f);
    const Uint<Ops> subnormal = reinterpret_cast<Uint<Ops>>(shifted) - kUnits;
    const Uint<Ops> rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1);
    Uint<Ops> normal = (rounded - (kSmallestNormal - (std::uint32_t{1} << 23))) >> 20;
    normal = normal < 0x7e ? normal : Uint<Ops>{} + 0x7e;
    Uint<Ops> code = magnitude < kSmallestNormal ? subnormal : normal;
    code = value == value ? code : Uint<Ops>{} + 0x7f;
    return Ops::low_bytes(code | ((bits >> 24) & 0x80));
}

}  // namespace flashmla::backends::cpu
