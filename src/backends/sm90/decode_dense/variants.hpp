// The instantiations of the kernel, one translation unit each.
#pragma once

#include <cutlass/numeric_types.h>

namespace flashmla::backends::sm90::decode_dense {

// One row tile a worker: every CTA streams its own keys.
struct SingleBf16 {
    using Element = cutlass::bfloat16_t;
    static constexpr int kCluster = 1;
};
struct SingleFp16 {
    using Element = cutlass::half_t;
    static constexpr int kCluster = 1;
};
// Two row tiles a worker: a cluster of two CTAs shares one stream of keys by multicast.
struct PairBf16 {
    using Element = cutlass::bfloat16_t;
    static constexpr int kCluster = 2;
};
struct PairFp16 {
    using Element = cutlass::half_t;
    static constexpr int kCluster = 2;
};

}  // namespace flashmla::backends::sm90::decode_dense
