// A tile of keys with values of their own, into the buffer that attend reads: a value lies behind its key, value_offset
// elements from the key's first.
#pragma once

#include "backends/cpu/tile_kernels.hpp"
#include "backends/cpu/vector.hpp"

namespace flashmla::backends::cpu {

// A row of 16-bit values as units: fp32 values one by one, or the codes in pairs.
template <class Ops>
FLASHMLA_INLINE void load_unit_row(DType dtype, const std::uint16_t* row, int width, float* to) {
    constexpr int kStep = Ops::kLanes * Ops::kDepthPerUnit;
    for (int d = 0; d < width; d += kStep) store(to + d / Ops::kDepthPerUnit, Ops::load_units(dtype, row + d));
}

template <class Ops>
void load_pairs(const TileShape& shape, const std::uint16_t* const* keys, const std::uint16_t* const* values, int count,
                float* buffer) {
    for (int k = 0; k < count; ++k) {
        float* to = buffer + k * Ops::kKeyStride;
        load_unit_row<Ops>(shape.dtype, keys[k], shape.d_qk, to);
        load_unit_row<Ops>(shape.dtype, values[k], shape.d_v, to + shape.value_offset / Ops::kDepthPerUnit);
    }
    if constexpr (Ops::kDepthPerUnit == 2) {
        // Once more in pairs along the keys; an odd last key is paired with zeros.
        float* pairs = buffer + Ops::kKeyFloats;
        for (int k = 0; k < count; k += 2) {
            const bool pair = k + 1 < count;
            for (int d = 0; d < shape.d_v; d += Ops::kLanes) {
                const auto widened = [d](const std::uint16_t* row) __attribute__((always_inline)) {
                    return __builtin_convertvector(load<Half<Ops>>(row + d), Uint<Ops>);
                };
                const Uint<Ops> high = pair ? widened(values[k + 1]) : Uint<Ops>{};
                store(pairs + k / 2 * Ops::kValueStride + d, widened(values[k]) | high << 16);
            }
        }
    }
}

}  // namespace flashmla::backends::cpu
