// mbarriers in shared memory, named barriers, and the fence before bulk copies and WGMMA. CUTLASS's wrappers carry no
// compiler fence, so ordinary loads and stores may be moved across them; these add it.
#pragma once

#include <cutlass/arch/barrier.h>

#include <cstdint>

namespace flashmla::gpu {

__device__ __forceinline__ void compiler_fence() { asm volatile("" ::: "memory"); }

// Named barrier `id` (0 to 7) of `threads` threads.
__device__ __forceinline__ void sync_threads(int threads, int id) {
    compiler_fence();
    cutlass::arch::NamedBarrier::sync(threads, id);
    compiler_fence();
}

// What this thread stored to shared memory, for bulk copies and WGMMA that it or another thread starts once told.
__device__ __forceinline__ void fence_for_async_readers() {
    compiler_fence();
    cutlass::arch::fence_view_async_shared();
    compiler_fence();
}

struct Barrier {
    std::uint64_t word;

    __device__ __forceinline__ void init(std::uint32_t arrivals) {
        cutlass::arch::ClusterTransactionBarrier::init(&word, arrivals);
    }
    __device__ __forceinline__ void wait(std::uint32_t phase) {
        cutlass::arch::ClusterTransactionBarrier::wait(&word, phase);
        compiler_fence();
    }
    __device__ __forceinline__ void arrive() {
        compiler_fence();
        cutlass::arch::ClusterTransactionBarrier::arrive(&word);
    }
    // On the same barrier of CTA `rank` of the cluster.
    __device__ __forceinline__ void arrive_at(std::uint32_t rank) {
        compiler_fence();
        cutlass::arch::ClusterTransactionBarrier::arrive(&word, rank, 1u);
    }
    __device__ __forceinline__ void arrive_expecting(std::uint32_t bytes) {
        compiler_fence();
        cutlass::arch::ClusterTransactionBarrier::arrive_and_expect_tx(&word, bytes);
    }
};

// Arrivals that one warp gives a barrier: one of its lanes stands for all, after __syncwarp. compute-sanitizer's
// racecheck takes a barrier to order the accesses of the arriving thread alone; for it, a build lets every lane arrive.
#if defined(FLASHMLA_EVERY_LANE_ARRIVES)
inline constexpr int kWarpArrivals = 32;
#else
inline constexpr int kWarpArrivals = 1;
#endif

__device__ __forceinline__ void arrive_as_warp(Barrier& barrier, int lane) {
    __syncwarp();
    if (kWarpArrivals > 1 || lane == 0) barrier.arrive();
}

// On the same barrier of every CTA of the cluster.
template <int kCluster>
__device__ __forceinline__ void arrive_as_warp_everywhere(Barrier& barrier, int lane) {
    if constexpr (kCluster == 1) {
        arrive_as_warp(barrier, lane);
    } else if constexpr (kWarpArrivals > 1) {
        for (int rank = 0; rank < kCluster; ++rank) barrier.arrive_at(rank);
    } else {
        __syncwarp();
        if (lane < kCluster) barrier.arrive_at(lane);
    }
}

// A place in a ring of N slots, with the phase of its barriers.
template <int N>
struct RingPosition {
    int slot = 0;
    std::uint32_t phase = 0;

    __device__ __forceinline__ void advance(int steps) {  // steps < N
        slot += steps;
        if (slot >= N) {
            slot -= N;
            phase ^= 1;
        }
    }
    __device__ __forceinline__ RingPosition ahead(int steps) const {
        RingPosition copy = *this;
        copy.advance(steps);
        return copy;
    }
};

}  // namespace flashmla::gpu
