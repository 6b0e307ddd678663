// The one micro-kernel under both products: C[i][row] (+)= sum over s of A(i, s) * B[s][row].
//
//   scores:  C = S^T [key][row], A = keys,   i = key, s = depth; B = packed queries
//   values:  C = O^T [dim][row], A = values, i = dim, s = key;   B = weights
//
// A is broadcast element by element, B and C are vectors over rows. The block of C in registers is kTile x kVectors. A
// unit of A and B is 32 bits: one fp32, or a pair of bf16 that one dot-product instruction consumes.
#pragma once

#include "backends/cpu/vector.hpp"

namespace flashmla::backends::cpu {

enum class Start {
    kZero,    // C = product
    kAdd,     // C += product
    kRescale  // C = C * factor(row) + product
};

// How A is walked: address of A(i, s) = a + i * kI + s * kS.
template <int kIStride, int kSStride>
struct Walk {
    static constexpr int kI = kIStride;
    static constexpr int kS = kSStride;
};

template <class Ops, class Walk, Start kStart, int kTile, int kVectors>
FLASHMLA_INLINE void gemm_block(const float* a, const float* b, int steps, const Float<Ops>* factor, float* c) {
    constexpr int kWidth = kVectors * Ops::kLanes;
    Float<Ops> acc[kTile][kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kTile; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
            if constexpr (kStart == Start::kZero) {
                acc[i][j] = Float<Ops>{};
            } else {
                acc[i][j] = load<Float<Ops>>(c + i * kWidth + j * Ops::kLanes);
                if constexpr (kStart == Start::kRescale) acc[i][j] *= factor[j];
            }
        }
    }
    for (int s = 0; s < steps; ++s) {
        Float<Ops> row[kVectors];
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) row[j] = load<Float<Ops>>(b + j * Ops::kLanes);
#pragma GCC unroll 16
        for (int i = 0; i < kTile; ++i) {
            const Float<Ops> element = Ops::broadcast(a + i * Walk::kI);
#pragma GCC unroll 4
            for (int j = 0; j < kVectors; ++j) acc[i][j] = Ops::multiply_add(element, row[j], acc[i][j]);
        }
        a += Walk::kS;
        b += kWidth;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kTile; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) store(c + i * kWidth + j * Ops::kLanes, acc[i][j]);
    }
}

// The last count < kTile rows of C, by a block of just that size.
template <class Ops, class Walk, Start kStart, int kTile, int kVectors>
FLASHMLA_INLINE void gemm_rest(const float* a, const float* b, int count, int steps, const Float<Ops>* factor,
                               float* c) {
    if constexpr (kTile > 0) {
        if (count == kTile) {
            gemm_block<Ops, Walk, kStart, kTile, kVectors>(a, b, steps, factor, c);
        } else {
            gemm_rest<Ops, Walk, kStart, kTile - 1, kVectors>(a, b, count, steps, factor, c);
        }
    }
}

// `between` is called after each block of C: a place for prefetches that is visited at an even pace.
template <class Ops, class Walk, Start kStart, int kVectors, class Between>
FLASHMLA_INLINE void gemm(const float* a, const float* b, int count, int steps, const Float<Ops>* factor, float* c,
                          const Between& between) {
    constexpr int kTile = Ops::template tile<kVectors>();
    constexpr int kWidth = kVectors * Ops::kLanes;
    int i = 0;
    for (; i + kTile <= count; i += kTile) {
        gemm_block<Ops, Walk, kStart, kTile, kVectors>(a + i * Walk::kI, b, steps, factor, c + i * kWidth);
        between();
    }
    gemm_rest<Ops, Walk, kStart, kTile - 1, kVectors>(a + i * Walk::kI, b, count - i, steps, factor, c + i * kWidth);
}

}  // namespace flashmla::backends::cpu
