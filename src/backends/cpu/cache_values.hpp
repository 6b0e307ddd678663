// The functions of CacheKernels as templates over the vectors of an instruction set: whole vectors, then the rest value
// by value with the same arithmetic.
#pragma once

#include "backends/cpu/cache_kernels.hpp"
#include "backends/cpu/fp8_vector.hpp"
#include "core/kv_quantize.hpp"

namespace flashmla::backends::cpu {

// Isa: kLanes, decode_fp16(from), decode_e4m3(from), encode_fp16(Float), low_bytes(Uint) for lanes below 256.
template <class Isa>
struct CacheValues {
    static constexpr int kLanes = Isa::kLanes;

    static void widen(DType dtype, const std::uint8_t* from, int count, float* to) {
        if (dtype == DType::kFloat32) {
            __builtin_memcpy(to, from, sizeof(float) * static_cast<std::size_t>(count));
            return;
        }
        const auto* codes = reinterpret_cast<const std::uint16_t*>(from);
        int i = 0;
        if (dtype == DType::kBFloat16) {
            for (; i + kLanes <= count; i += kLanes) store(to + i, decode_bf16<Isa>(codes + i));
        } else {
            for (; i + kLanes <= count; i += kLanes) store(to + i, Isa::decode_fp16(codes + i));
        }
        for (; i < count; ++i) to[i] = core::decode_16bit(dtype, core::load_unaligned<std::uint16_t>(from + 2 * i));
    }

    static void narrow(DType dtype, const float* from, int count, std::uint8_t* to) {
        if (dtype == DType::kFloat32) {
            __builtin_memcpy(to, from, sizeof(float) * static_cast<std::size_t>(count));
            return;
        }
        int i = 0;
        if (dtype == DType::kBFloat16) {
            for (; i + kLanes <= count; i += kLanes) {
                const Uint<Isa> rounded = round_to_bf16<Isa>(load<Float<Isa>>(from + i));
                store(to + 2 * i, __builtin_convertvector(rounded, Half<Isa>));
            }
        } else {
            for (; i + kLanes <= count; i += kLanes) store(to + 2 * i, Isa::encode_fp16(load<Float<Isa>>(from + i)));
        }
        for (; i < count; ++i) core::store_unaligned(to + 2 * i, core::encode_16bit(dtype, from[i]));
    }

    static float largest_finite(const float* from, int count) {
        Uint<Isa> largest{};
        int i = 0;
        for (; i + kLanes <= count; i += kLanes) {
            Uint<Isa> magnitude = load<Uint<Isa>>(from + i) & core::kFloatMagnitude;
            magnitude = magnitude < core::kFloatInfinity ? magnitude : Uint<Isa>{};
            largest = magnitude > largest ? magnitude : largest;
        }
        std::uint32_t bits = 0;
        for (int lane = 0; lane < kLanes; ++lane) bits = core::max_of<std::uint32_t>(bits, largest[lane]);
        float amax = core::float_from_bits(bits);
        for (; i < count; ++i) amax = core::larger_finite(amax, from[i]);
        return amax;
    }

    static void quantize(const float* from, int count, float scale, std::uint8_t* to) {
        int i = 0;
        // Dividing by a power of two and multiplying with its reciprocal are the same real number, rounded once. (Its
        // reciprocal is a normal number for every scale that a finite amax gives.)
        const float inverse = 1.0f / scale;
        const bool power_of_two = (core::float_bits(scale) & 0x7fffff) == 0 && scale <= 0x1p126f && scale >= 0x1p-126f;
        if (power_of_two) {
            const Float<Isa> factor = splat<Isa>(inverse);
            for (; i + kLanes <= count; i += kLanes) {
                store(to + i, encode_e4m3<Isa>(load<Float<Isa>>(from + i) * factor));
            }
        } else {
            const Float<Isa> divisor = splat<Isa>(scale);
            for (; i + kLanes <= count; i += kLanes) {
                store(to + i, encode_e4m3<Isa>(load<Float<Isa>>(from + i) / divisor));
            }
        }
        for (; i < count; ++i) to[i] = core::quantize(from[i], scale);
    }

    static void dequantize(const std::uint8_t* from, int count, float scale, float* to) {
        const Float<Isa> factor = splat<Isa>(scale);
        int i = 0;
        for (; i + kLanes <= count; i += kLanes) store(to + i, Isa::decode_e4m3(from + i) * factor);
        for (; i < count; ++i) to[i] = core::e4m3_to_float(from[i]) * scale;
    }
};

template <class Isa>
constexpr CacheKernels make_cache_kernels() {
    return {.widen = &CacheValues<Isa>::widen,
            .narrow = &CacheValues<Isa>::narrow,
            .largest_finite = &CacheValues<Isa>::largest_finite,
            .quantize = &CacheValues<Isa>::quantize,
            .dequantize = &CacheValues<Isa>::dequantize};
}

}  // namespace flashmla::backends::cpu
