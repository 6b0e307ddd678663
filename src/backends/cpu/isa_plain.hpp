// What a path needs of an instruction set, for any CPU and any number of lanes: vectors as the compiler sees fit,
// 16-bit floats value by value, no fused multiply-add. The portable path, and the emulation of wider ones in tests.
#pragma once

#include "backends/cpu/fp8_vector.hpp"
#include "core/float_formats.hpp"

namespace flashmla::backends::cpu {

// Tag keeps the instantiations of the translation units apart (see vector.hpp).
template <class Tag, int kLaneCount>
struct Plain {
    static constexpr int kLanes = kLaneCount;
    using F = typename Lanes<kLanes>::Float;
    using H = typename Lanes<kLanes>::Half;
    using Byte = typename ByteLanes<kLanes>::Byte;

    static FLASHMLA_INLINE F multiply_add_f32(F a, F b, F c) { return a * b + c; }
    static FLASHMLA_INLINE F decode_fp16(const void* from) {
        const H codes = load<H>(from);
        F v;
        for (int i = 0; i < kLanes; ++i) v[i] = core::fp16_to_float(codes[i]);
        return v;
    }
    static FLASHMLA_INLINE F decode_e4m3(const std::uint8_t* from) { return cpu::decode_e4m3<Plain>(from); }
    static FLASHMLA_INLINE H encode_fp16(F value) {
        H v;
        for (int i = 0; i < kLanes; ++i) v[i] = core::float_to_fp16(value[i]);
        return v;
    }
    static FLASHMLA_INLINE Byte low_bytes(typename Lanes<kLanes>::Uint value) {
        return __builtin_convertvector(value, Byte);
    }
    static FLASHMLA_INLINE typename Lanes<2 * kLanes>::Half pack(typename Lanes<kLanes>::Uint low,
                                                                 typename Lanes<kLanes>::Uint high) {
        const H parts[2] = {__builtin_convertvector(low, H), __builtin_convertvector(high, H)};
        typename Lanes<2 * kLanes>::Half words;
        __builtin_memcpy(&words, parts, sizeof(words));
        return words;
    }
    using Words = typename Lanes<2 * kLanes>::Half;
    static FLASHMLA_INLINE bool any_below(Words a, Words b) {
        bool any = false;
        for (int i = 0; i < 2 * kLanes; ++i) any = any || a[i] < b[i];
        return any;
    }
    static FLASHMLA_INLINE typename ByteLanes<4 * kLanes>::Byte signed_codes(Words low, Words high, Words low_signs,
                                                                             Words high_signs) {
        using Part = typename ByteLanes<2 * kLanes>::Byte;
        const Part parts[2] = {__builtin_convertvector(low | (low_signs >> 8 & 0x80), Part),
                               __builtin_convertvector(high | (high_signs >> 8 & 0x80), Part)};
        typename ByteLanes<4 * kLanes>::Byte bytes;
        __builtin_memcpy(&bytes, parts, sizeof(bytes));
        return bytes;
    }
};

}  // namespace flashmla::backends::cpu
