// What the paths with bf16 dot products share: a unit is a pair of bf16, two products a lane and instruction.
//
// Keys keep their layout (pairs along the depth, for scores) and are stored a second time with the rows of two
// neighboring keys interleaved (pairs along the keys, for values). Weights are rounded to bf16 in pairs; their sum is
// taken before rounding.
#pragma once

#include "backends/cpu/config.hpp"
#include "backends/cpu/decode_keys.hpp"
#include "backends/cpu/tile_kernels.hpp"
#include "backends/cpu/vector.hpp"

namespace flashmla::backends::cpu {

// Isa: kLanes, kPanelVectors, kDepthBlock, tile(), multiply_add_f32(a, b, c), and dot_bf16(a, b, c) = c + the two
// products of each lane's pairs.
template <class Isa>
struct Bf16Ops : Isa {
    using Ops = Bf16Ops;
    using F = typename Lanes<Isa::kLanes>::Float;

    static constexpr int kDepthPerUnit = 2;
    static constexpr int kKeyStride = 304;    // 19 cache lines, odd: see Fp32Ops
    static constexpr int kValueStride = 528;  // 33 cache lines
    static constexpr int kKeyFloats = kKeyTile * kKeyStride;
    static constexpr std::uint32_t kSignBits = 0x80008000u;
    static_assert(kKeyStride >= kMaxDepth / 2 && kValueStride >= kMaxValueDepth && kKeyTile % 2 == 0);
    static_assert(kKeyFloats + kKeyTile / 2 * kValueStride <= kKeyBufferFloats);
    static_assert(2 * kKeyTile * Isa::kPanelVectors * Isa::kLanes <= kScratchFloats);

    static FLASHMLA_INLINE F broadcast(const float* a) { return splat<Ops>(*a); }
    static FLASHMLA_INLINE F multiply_add(F a, F b, F c) { return Isa::dot_bf16(a, b, c); }

    static FLASHMLA_INLINE F load_units(DType, const std::uint16_t* from) { return load<F>(from); }
    static FLASHMLA_INLINE Half<Ops> round_to_16bit(DType, F value) {
        return __builtin_convertvector(round_to_bf16<Ops>(value), Half<Ops>);
    }

    static FLASHMLA_INLINE const float* values(const float* keys) { return keys + kKeyFloats; }
    static FLASHMLA_INLINE float value(const float* keys, int key, int dim) {
        std::uint16_t code;
        __builtin_memcpy(&code, reinterpret_cast<const char*>(keys + key * kKeyStride) + 2 * dim, sizeof(code));
        return __builtin_bit_cast(float, static_cast<std::uint32_t>(code) << 16);
    }

    // [key][row] fp32 to [key / 2][row] pairs. An odd last key is paired with the weight 0.
    static FLASHMLA_INLINE const float* pack_weights(const float* weights, int count, int width, float* packed) {
        for (int k = 0; k < count; k += 2) {
            for (int lane = 0; lane < width; lane += Isa::kLanes) {
                const float* from = weights + k * width + lane;
                const Uint<Ops> low = round_to_bf16<Ops>(load<F>(from));
                const Uint<Ops> high = k + 1 < count ? round_to_bf16<Ops>(load<F>(from + width)) : Uint<Ops>{};
                store(packed + k / 2 * width + lane, low | high << 16);
            }
        }
        return packed;
    }

    static FLASHMLA_INLINE Uint<Ops> widen(const char* from) {
        return __builtin_convertvector(load<Half<Ops>>(from), Uint<Ops>);
    }

    // The bf16 codes of key k: copied, or decoded and rounded (which changes nothing: see product_type).
    static FLASHMLA_INLINE void store_codes(const TileShape& shape, const KeyRows& rows, int k, char* to) {
        if (shape.format == CacheFormat::kBFloat16) {
            for (int d = 0; d < shape.d_qk; d += 2 * Isa::kLanes) store(to + 2 * d, load<F>(rows.values[k] + 2 * d));
            return;
        }
        decode_key<Ops>(
            shape, rows, k, [to](int d, F values) __attribute__((always_inline)) {
                store(to + 2 * d, __builtin_convertvector(round_to_bf16<Ops>(values), Half<Ops>));
            });
    }

    static void load_keys(const TileShape& shape, const KeyRows& rows, int count, float* buffer) {
        const auto codes = [buffer](int k) { return reinterpret_cast<char*>(buffer + k * kKeyStride); };
        for (int k = 0; k < count; ++k) store_codes(shape, rows, k, codes(k));
        float* values = buffer + kKeyFloats;
        for (int k = 0; k < count; k += 2) {
            const bool pair = k + 1 < count;  // an odd last key is paired with zeros
            for (int d = 0; d < shape.d_v; d += Isa::kLanes) {
                const Uint<Ops> high = pair ? widen(codes(k + 1) + 2 * d) : Uint<Ops>{};
                store(values + k / 2 * kValueStride + d, widen(codes(k) + 2 * d) | high << 16);
            }
        }
    }
};

}  // namespace flashmla::backends::cpu
