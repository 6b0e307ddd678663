// Rows times a weight matrix: the product under absorb and project. Columns of the result are the lanes.
//
// The block's weights are converted once into panels [depth][columns of a panel], rows of x into fp32 rows, 64 at a
// time. Both serve the micro-kernel of gemm.hpp, whose A is x. Products are fp32 on every path.
#pragma once

#include "backends/cpu/gemm.hpp"
#include "backends/cpu/row_ops.hpp"
#include "backends/cpu/tile_kernels.hpp"

namespace flashmla::backends::cpu {

template <class Ops>
struct Fp32Products : Ops {
    static FLASHMLA_INLINE Float<Ops> multiply_add(Float<Ops> a, Float<Ops> b, Float<Ops> c) {
        return Ops::multiply_add_f32(a, b, c);
    }
};

template <class Ops>
constexpr int kProjectPanel = Ops::kPanelVectors* Ops::kLanes;

// With those that fill up the last panel.
template <class Ops>
FLASHMLA_INLINE int padded_columns(const ProjectArgs& args) {
    return (args.columns + kProjectPanel<Ops> - 1) / kProjectPanel<Ops> * kProjectPanel<Ops>;
}

// Panels of the weights for depths [begin, begin + steps); columns that fill up the last panel are zeros.
template <class Ops>
void pack_weights_by_depth(const ProjectArgs& args, std::int64_t begin, int steps, float* panels) {
    constexpr int kPanel = kProjectPanel<Ops>;
    for (int s = 0; s < steps; ++s) {
        const char* row = static_cast<const char*>(args.weight) +
                          (begin + s) * args.weight_stride * static_cast<std::int64_t>(size_bytes(args.dtype));
        for (int column = 0; column < padded_columns<Ops>(args); column += Ops::kLanes) {
            float* to = panels + column / kPanel * kPanel * steps + s * kPanel + column % kPanel;
            const int left = args.columns - column;
            store(to, left > 0 ? decode_some<Ops>(args.dtype, row, column, left) : Float<Ops>{});
        }
    }
}

template <class Ops>
void pack_weights_by_column(const ProjectArgs& args, std::int64_t begin, int steps, float* panels) {
    constexpr int kPanel = kProjectPanel<Ops>;
    for (int column = 0; column < padded_columns<Ops>(args); column += Ops::kLanes) {
        float* panel = panels + column / kPanel * kPanel * steps + column % kPanel;
        for (int s = 0; s < steps; s += Ops::kLanes) {
            Float<Ops> block[Ops::kLanes];
#pragma GCC unroll 16
            for (int c = 0; c < Ops::kLanes; ++c) {
                block[c] = Float<Ops>{};
                if (column + c >= args.columns) continue;
                const char* row = static_cast<const char*>(args.weight) +
                                  (column + c) * args.weight_stride * static_cast<std::int64_t>(size_bytes(args.dtype));
                block[c] = decode_some<Ops>(args.dtype, row, begin + s, steps - s);
            }
            transpose<Ops>(block);
            const int count = steps - s < Ops::kLanes ? steps - s : Ops::kLanes;
            for (int i = 0; i < count; ++i) store(panel + (s + i) * kPanel, block[i]);
        }
    }
}

template <class Ops>
void project(const ProjectArgs& args) {
    using Products = Fp32Products<Ops>;
    using ByRow = Walk<kProjectStride, 1>;
    constexpr int kPanel = kProjectPanel<Ops>;
    constexpr int kVectors = Ops::kPanelVectors;
    float* x = args.scratch;
    float* weights = x + kProjectRows * kProjectStride;
    float* product = weights + kProjectDepth * kProjectColumns;
    const auto element = static_cast<std::int64_t>(size_bytes(args.dtype));
    std::int64_t packed = -1;  // the depth block that `weights` holds
    for (std::int64_t first = 0; first < args.rows; first += kProjectRows) {
        const int rows = static_cast<int>(args.rows - first < kProjectRows ? args.rows - first : kProjectRows);
        for (int i = 0; args.depth == 0 && i < kProjectRows * kProjectColumns; ++i) product[i] = 0;
        for (std::int64_t begin = 0; begin < args.depth; begin += kProjectDepth) {
            const int steps = static_cast<int>(args.depth - begin < kProjectDepth ? args.depth - begin : kProjectDepth);
            if (packed != begin) {
                packed = begin;
                if (args.weight_by_column) {
                    pack_weights_by_column<Ops>(args, begin, steps, weights);
                } else {
                    pack_weights_by_depth<Ops>(args, begin, steps, weights);
                }
            }
            for (int r = 0; r < rows; ++r) {
                const char* row = static_cast<const char*>(args.x) + (first + r) * args.x_stride * element;
                for (int d = 0; d < steps; d += Ops::kLanes) {
                    store(x + r * kProjectStride + d, decode_some<Ops>(args.dtype, row, begin + d, steps - d));
                }
            }
            for (int column = 0; column < args.columns; column += kPanel) {
                const float* panel = weights + column * steps;
                float* c = product + column * kProjectRows;
                // In blocks of depth, so that the panel's part stays in L1 while the rows stream past it.
                for (int at = 0; at < steps; at += Ops::kDepthBlock) {
                    const int block = steps - at < Ops::kDepthBlock ? steps - at : Ops::kDepthBlock;
                    const float* b = panel + at * kPanel;
                    if (begin + at == 0) {
                        gemm<Products, ByRow, Start::kZero, kVectors>(x + at, b, rows, block, nullptr, c, [] {});
                    } else {
                        gemm<Products, ByRow, Start::kAdd, kVectors>(x + at, b, rows, block, nullptr, c, [] {});
                    }
                }
            }
        }
        for (int column = 0; column < args.columns; column += Ops::kLanes) {
            const float* c = product + column / kPanel * kPanel * kProjectRows + column % kPanel;
            for (int r = 0; r < rows; ++r) {
                char* row = static_cast<char*>(args.out) + (first + r) * args.out_stride * element;
                encode_some<Ops>(args.dtype, load<Float<Ops>>(c + r * kPanel), row, column, args.columns - column);
            }
        }
    }
}

}  // namespace flashmla::backends::cpu
