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
    static constexpr bool kFused = false;
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
    static FLASHMLA_INLINE std::uint16_t largest_word(Words words) {
        std::uint16_t largest = 0;
        for (int i = 0; i < 2 * kLanes; ++i) largest = words[i] > largest ? words[i] : largest;
        return largest;
    }
    using WideBytes = typename ByteLanes<4 * kLanes>::Byte;
    static FLASHMLA_INLINE WideBytes pack_bytes(Words low, Words high) {
        WideBytes bytes;
        for (int i = 0; i < 4 * kLanes; ++i) {
            const auto lane = static_cast<std::int16_t>(i < 2 * kLanes ? low[i] : high[i - 2 * kLanes]);
            bytes[i] = static_cast<std::uint8_t>(lane < 0 ? 0 : lane > 255 ? 255 : lane);
        }
        return bytes;
    }
    static FLASHMLA_INLINE WideBytes pack_signs(Words low, Words high) {
        return pack_bytes(low >> 8 & 0x80, high >> 8 & 0x80);
    }
    static FLASHMLA_INLINE WideBytes in_order(WideBytes bytes) { return bytes; }
    static FLASHMLA_INLINE WideBytes repeated(const std::uint8_t* bytes) {
        WideBytes vector;
        for (int i = 0; i < 4 * kLanes; ++i) vector[i] = bytes[i % 16];
        return vector;
    }
    static FLASHMLA_INLINE WideBytes look_up(WideBytes table, WideBytes indices) {
        WideBytes bytes;
        for (int i = 0; i < 4 * kLanes; ++i) bytes[i] = table[indices[i]];
        return bytes;
    }
    static FLASHMLA_INLINE bool any(WideBytes bytes) {
        bool any = false;
        for (int i = 0; i < 4 * kLanes; ++i) any = any || bytes[i] != 0;
        return any;
    }
};

}  // namespace flashmla::backends::cpu
