// The instantiations of the kernel, one translation unit each.
#pragma once

#include <cutlass/numeric_types.h>

namespace flashmla::backends::sm90::decode_dense {

// kHoldValues: whether P V of a tile waits until the next tile's scores are nearly done. It keeps the tensor cores in
// step where they bind (pairs), and costs slots of the ring where memory binds (single).

// kPrefetch: whether pages are fetched into L2 a key tile before they are copied.

// One row tile a worker: every CTA streams its own keys.
struct SingleBf16 {
    using Element = cutlass::bfloat16_t;
    static constexpr int kCluster = 1;
    static constexpr bool kHoldValues = false;
    static constexpr bool kPrefetch = false;
};
struct SingleFp16 {
    using Element = cutlass::half_t;
    static constexpr int kCluster = 1;
    static constexpr bool kHoldValues = false;
    static constexpr bool kPrefetch = false;
};
// Two row tiles a worker: a cluster of two CTAs shares one stream of keys by multicast.
struct PairBf16 {
    using Element = cutlass::bfloat16_t;
    static constexpr int kCluster = 2;
    static constexpr bool kHoldValues = true;
    static constexpr bool kPrefetch = true;
};
struct PairFp16 {
    using Element = cutlass::half_t;
    static constexpr int kCluster = 2;
    static constexpr bool kHoldValues = true;
    static constexpr bool kPrefetch = true;
};

}  // namespace flashmla::backends::sm90::decode_dense
