// The kernel: four warpgroups with one role each. The README has the timeline.
#pragma once

#include <cute/arch/cluster_sm90.hpp>
#include <cutlass/arch/grid_dependency_control.h>
#include <cutlass/arch/reg_reconfig.h>

#include "backends/sm90/decode_dense/load.cuh"
#include "backends/sm90/decode_dense/scores.cuh"
#include "backends/sm90/decode_dense/values.cuh"
#include "backends/sm90/decode_dense/variants.hpp"

namespace flashmla::backends::sm90::decode_dense {

template <int kCluster>
__device__ __forceinline__ void init_barriers(Barriers& barriers) {
    constexpr int kWarps = 4;
    for (int slot = 0; slot < kRingSlots; ++slot) barriers.slot_empty[slot].init(kWarps * kCluster);
    for (int tile = 0; tile < kTileBarriers; ++tile) {
        barriers.head_full[tile].init(1);
        barriers.last_full[tile].init(1);
    }
    barriers.rope_empty.init(kWarps * kCluster);
    barriers.q_pairs_full.init(1);
    barriers.q_tail_full.init(1);
    barriers.q_tail_empty.init(kWarps);
    for (int buffer = 0; buffer < 2; ++buffer) {
        barriers.p_ready[buffer].init(kWarps);
        barriers.p_free[buffer].init(2 * kWarps);
    }
    for (int slot = 0; slot < kQueueSlots; ++slot) {
        barriers.piece_full[slot].init(1);
        barriers.piece_empty[slot].init(1 + 3 * kWarps);
    }
    cutlass::arch::fence_barrier_init();
}

// Execution only, no fence beyond the CTA: what CTAs of a cluster share is barriers, whose initialisation has a fence of its own.
template <int kCluster>
__device__ __forceinline__ void sync_cluster() {
    __syncthreads();
    if constexpr (kCluster > 1) {
        cute::cluster_arrive_relaxed();
        cute::cluster_wait();
    }
}

template <class Variant>
__global__ void __launch_bounds__(kThreads, 1)
    flash_fwd_splitkv_mla_kernel(const __grid_constant__ Params p) {
    constexpr int kCluster = Variant::kCluster;
    using Element = typename Variant::Element;
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);

    const int worker = blockIdx.x / kCluster;
    const int rank = blockIdx.x % kCluster;
    const int warp = cutlass::canonical_warp_idx_sync();
    const int lane = threadIdx.x % 32;

    cutlass::arch::launch_dependent_grids();
    if (threadIdx.x == 0) init_barriers<kCluster>(shared.barriers);
    find_cuts<kCluster>(p, shared, worker);
    sync_cluster<kCluster>();
    if (threadIdx.x == 0 && rank == 0) {
        p.cuts[worker] = shared.cuts[0];
        if (worker + 1 == p.num_workers) p.cuts[p.num_workers] = plan::Cut{p.work.b, 0, 0};
    }

    const int role = warp / 4;
    if (role == 0) {
        cutlass::arch::warpgroup_reg_dealloc<kProducerRegisters>();
        if (warp == 0) Producer<kCluster, Variant::kPrefetch>{p, shared, rank, lane}.run();
        if (warp == 1) publish_pieces<kCluster>(p, shared, worker, rank, lane);
    } else if (role == 1) {
        cutlass::arch::warpgroup_reg_alloc<kScoresRegisters>();
        Scores<Element, kCluster, Variant::kHoldValues>{p, shared, rank, warp % 4, lane}.run();
    } else if (role == 2) {
        cutlass::arch::warpgroup_reg_alloc<kValuesRegisters>();
        Values<Element, kCluster, 0>{p, shared, rank, warp % 4, lane}.run();
    } else {
        cutlass::arch::warpgroup_reg_alloc<kValuesRegisters>();
        Values<Element, kCluster, 1>{p, shared, rank, warp % 4, lane}.run();
    }
    // A CTA's barriers must outlive its peer's last arrival on them.
    sync_cluster<kCluster>();
}

}  // namespace flashmla::backends::sm90::decode_dense
