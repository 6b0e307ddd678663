// Rows in and out of a tile: queries packed into panels, partial results merged, the result normalised and rounded.
#pragma once

#include "backends/cpu/attend.hpp"
#include "backends/cpu/gradients.hpp"
#include "backends/cpu/pairs.hpp"
#include "backends/cpu/project.hpp"
#include "backends/cpu/row_ops.hpp"

namespace flashmla::backends::cpu {

template <class Ops>
void pack_queries(const TileShape& shape, const std::uint16_t* const* rows, float* packed) {
    constexpr int kLanes = Ops::kLanes;
    const int depth = shape.d_qk / Ops::kDepthPerUnit;
    const Uint<Ops> sign = Uint<Ops>{} + (shape.negate_queries ? Ops::kSignBits : 0u);
    for_each_panel<Ops>(shape.rows, [&]<int kVectors>(int first_row) {
        float* panel = packed + static_cast<std::ptrdiff_t>(first_row) * depth;
        for (int begin = 0; begin < depth; begin += kLanes) {
            for (int j = 0; j < kVectors; ++j) {
                Float<Ops> block[kLanes];
#pragma GCC unroll 16
                for (int r = 0; r < kLanes; ++r) {
                    const int row = first_row + j * kLanes + r;
                    block[r] = Float<Ops>{};
                    if (row < shape.rows) {
                        const Float<Ops> units = Ops::load_units(shape.dtype, rows[row] + begin * Ops::kDepthPerUnit);
                        block[r] = reinterpret_cast<Float<Ops>>(reinterpret_cast<Uint<Ops>>(units) ^ sign);
                    }
                }
                transpose<Ops>(block);
#pragma GCC unroll 16
                for (int u = 0; u < kLanes; ++u) store(panel + ((begin + u) * kVectors + j) * kLanes, block[u]);
            }
        }
    });
}

template <class Ops>
void fold(const TileShape& shape, const Partial& into, const Partial& from) {
    const Float<Ops> scale = splat<Ops>(shape.scale_log2);
    for_each_panel<Ops>(shape.rows, [&]<int kVectors>(int first_row) {
        for (int j = 0; j < kVectors; ++j) {
            const int row = first_row + j * Ops::kLanes;
            const Float<Ops> a = load<Float<Ops>>(into.max + row);
            const Float<Ops> b = load<Float<Ops>>(from.max + row);
            const Float<Ops> max = b > a ? b : a;
            const Float<Ops> weight_a = rescale<Ops>(a, max, scale);
            const Float<Ops> weight_b = rescale<Ops>(b, max, scale);
            const Float<Ops> sum = load<Float<Ops>>(into.sum + row) * weight_a;
            store(into.sum + row, Ops::multiply_add_f32(load<Float<Ops>>(from.sum + row), weight_b, sum));
            store(into.max + row, max);
            const std::ptrdiff_t base = static_cast<std::ptrdiff_t>(first_row) * shape.d_v + j * Ops::kLanes;
            for (int dim = 0; dim < shape.d_v; ++dim) {
                float* to = into.out + base + dim * kVectors * Ops::kLanes;
                const float* add = from.out + base + dim * kVectors * Ops::kLanes;
                store(to, Ops::multiply_add_f32(load<Float<Ops>>(add), weight_b, load<Float<Ops>>(to) * weight_a));
            }
        }
    });
}

template <class Ops>
void store_rows(const TileShape& shape, const Partial& partial, const int* visible, const float* factors,
                std::uint16_t* const* out_rows) {
    constexpr int kLanes = Ops::kLanes;
    for_each_panel<Ops>(shape.rows, [&]<int kVectors>(int first_row) {
        for (int j = 0; j < kVectors; ++j) {
            const int row = first_row + j * kLanes;
            const int count = shape.rows - row < kLanes ? shape.rows - row : kLanes;
            const Float<Ops> inverse = load<Float<Ops>>(factors + row) / load<Float<Ops>>(partial.sum + row);
            const Int<Ops> seen = load<Int<Ops>>(visible + row);
            const float* out = partial.out + static_cast<std::ptrdiff_t>(first_row) * shape.d_v + j * kLanes;
            for (int dim = 0; dim < shape.d_v; dim += kLanes) {
                Float<Ops> block[kLanes];
#pragma GCC unroll 16
                for (int d = 0; d < kLanes; ++d) {
                    const Float<Ops> value = load<Float<Ops>>(out + (dim + d) * kVectors * kLanes) * inverse;
                    block[d] = seen > 0 ? value : Float<Ops>{};
                }
                transpose<Ops>(block);
                for (int r = 0; r < count; ++r)
                    store(out_rows[row + r] + dim, Ops::round_to_16bit(shape.dtype, block[r]));
            }
        }
    });
}

// What attention over cached keys and dense prefill need.
template <class Ops>
constexpr TileKernels make_attention_kernels() {
    TileKernels kernels;
    kernels.lanes = Ops::kLanes;
    kernels.panel_rows = Ops::kPanelVectors * Ops::kLanes;
    kernels.pack_queries = &pack_queries<Ops>;
    kernels.load_keys = &Ops::load_keys;
    kernels.load_pairs = &load_pairs<Ops>;
    kernels.attend = &attend<Ops>;
    kernels.fold = &fold<Ops>;
    kernels.store = &store_rows<Ops>;
    return kernels;
}

template <class Ops>
constexpr TileKernels make_kernels() {
    TileKernels kernels = make_attention_kernels<Ops>();
    kernels.add_weighted_row = &add_weighted_row<Ops>;
    kernels.store_scaled_row = &store_scaled_row<Ops>;
    kernels.dot_rows = &dot_rows<Ops>;
    kernels.project = &project<Ops>;
    kernels.add_gradients = gradients_of<Ops>();
    return kernels;
}

}  // namespace flashmla::backends::cpu
