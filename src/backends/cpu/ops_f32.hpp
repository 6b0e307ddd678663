// What the paths with fp32 products share: a unit is one fp32, keys and values are the same converted rows.
#pragma once

#include "backends/cpu/config.hpp"
#include "backends/cpu/decode_keys.hpp"
#include "backends/cpu/tile_kernels.hpp"
#include "backends/cpu/vector.hpp"

namespace flashmla::backends::cpu {

// Isa: kLanes, decode_fp16(from), decode_e4m3(from), encode_fp16(Float), multiply_add_f32(a, b, c).
template <class Isa>
struct Fp32Ops : Isa {
    using Ops = Fp32Ops;
    using F = typename Lanes<Isa::kLanes>::Float;

    static constexpr int kDepthPerUnit = 1;
    static constexpr int kKeyStride = 592;  // 37 cache lines: an odd number spreads the rows of a tile over all L1 sets
    static constexpr int kValueStride = kKeyStride;
    static constexpr std::uint32_t kSignBits = 0x80000000u;
    static_assert(kKeyStride >= kMaxDepth && kKeyTile * kKeyStride <= kKeyBufferFloats);
    static_assert(2 * kKeyTile * Isa::kPanelVectors * Isa::kLanes <= kScratchFloats);

    static FLASHMLA_INLINE F broadcast(const float* a) { return splat<Ops>(*a); }
    static FLASHMLA_INLINE F multiply_add(F a, F b, F c) { return Isa::multiply_add_f32(a, b, c); }

    static FLASHMLA_INLINE F load_units(DType dtype, const std::uint16_t* from) {
        return dtype == DType::kBFloat16 ? decode_bf16<Ops>(from) : Isa::decode_fp16(from);
    }
    static FLASHMLA_INLINE Half<Ops> round_to_16bit(DType dtype, F value) {
        if (dtype == DType::kFloat16) return Isa::encode_fp16(value);
        return __builtin_convertvector(round_to_bf16<Ops>(value), Half<Ops>);
    }

    static FLASHMLA_INLINE const float* values(const float* keys) { return keys; }
    static FLASHMLA_INLINE float value(const float* keys, int key, int dim) { return keys[key * kKeyStride + dim]; }
    static FLASHMLA_INLINE const float* pack_weights(const float* weights, int, int, float*) { return weights; }

    static void load_keys(const TileShape& shape, const KeyRows& rows, int count, float* buffer) {
        for (int k = 0; k < count; ++k) {
            float* to = buffer + k * kKeyStride;
            decode_key<Ops>(
                shape, rows, k, [to](int d, F values) __attribute__((always_inline)) { store(to + d, values); });
        }
    }
};

}  // namespace flashmla::backends::cpu
