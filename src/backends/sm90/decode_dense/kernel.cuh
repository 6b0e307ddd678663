// The kernel: four warpgroups with one role each. The README has the timeline.
#pragma once

#include <cooperative_groups.h>

#include <cutlass/arch/reg_reconfig.h>
#include <cute/arch/cluster_sm90.hpp>

#include "backends/sm90/decode_dense/load.cuh"
#include "backends/sm90/decode_dense/merge.cuh"
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
    for (int i = 0; i < 2; ++i) barriers.q_pairs_full[i].init(1);
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

// Execution only, no fence beyond the CTA: what CTAs of a cluster share is barriers, whose initialisation has a fence
// of its own.
template <int kCluster>
__device__ __forceinline__ void sync_cluster() {
    __syncthreads();
    if constexpr (kCluster > 1) {
        cute::cluster_arrive_relaxed();
        cute::cluster_wait();
    }
}

template <class Variant>
__global__ void __launch_bounds__(kThreads, 1) flash_fwd_splitkv_mla_kernel(const __grid_constant__ Params p) {
    constexpr int kCluster = Variant::kCluster;
    using Element = typename Variant::Element;
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);

    // A worker is one or more clusters, side by side in the grid: they read the same pages at the same time, for other
    // rows.
    const int worker = blockIdx.x / p.work.row_tiles_per_unit;
    const int tile_in_unit = blockIdx.x % p.work.row_tiles_per_unit;
    const int rank = blockIdx.x % kCluster;
    const int warp = cutlass::canonical_warp_idx_sync();
    const int lane = threadIdx.x % 32;

    if (threadIdx.x == 0) init_barriers<kCluster>(shared.barriers);
    find_cuts(p, shared, worker);
    sync_cluster<kCluster>();

    // Nobody may wait for a signal before everybody has taken back his own of an earlier launch. The grid's barrier is
    // arrived at here and waited for before the merge, long after; so it costs nothing.
    const bool merges = p.work.chunk_tiles == 0;
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    if (merges) {
        if (threadIdx.x < 2) *signal_of(p, worker, tile_in_unit, threadIdx.x) = 0;
        const auto token = grid.barrier_arrive();
        if (threadIdx.x == 0) shared.grid_token = token;  // only the first thread's counts
    }

    const int role = warp / 4;
    if (role == 0) {
        cutlass::arch::warpgroup_reg_dealloc<kProducerRegisters>();
        // Not warp 0: its first thread is still busy with the grid's barrier.
        if (warp == 1) publish_pieces(p, shared, worker, tile_in_unit, lane);
        if (warp == 2) Producer<kCluster, Variant::kPrefetch>{p, shared, rank, lane}.run();
        // Waiting for registers would keep the idle warps polling, at the cost of everybody's issue slots.
        cutlass::arch::NamedBarrier::sync(128, 3);
        cutlass::arch::warpgroup_reg_alloc<kMergeRegisters>();
    } else if (role == 1) {
        cutlass::arch::warpgroup_reg_alloc<kScoresRegisters>();
        Scores<Element, kCluster, Variant::kHoldValues>{p, shared, warp % 4, lane}.run();
        cutlass::arch::warpgroup_reg_dealloc<kMergeRegisters>();
    } else if (role == 2) {
        cutlass::arch::warpgroup_reg_alloc<kValuesRegisters>();
        Values<Element, kCluster, 0> values{p, shared, tile_in_unit, warp % 4, lane};
        values.run();
        values.signal_partials(worker);
        cutlass::arch::warpgroup_reg_dealloc<kMergeRegisters>();
    } else {
        cutlass::arch::warpgroup_reg_alloc<kValuesRegisters>();
        Values<Element, kCluster, 1> values{p, shared, tile_in_unit, warp % 4, lane};
        values.run();
        values.signal_partials(worker);
        cutlass::arch::warpgroup_reg_dealloc<kMergeRegisters>();
    }
    if (merges && shared.entered.count + shared.left.count > 0) {
        cooperative_groups::grid_group::arrival_token token = shared.grid_token;
        grid.barrier_wait(static_cast<decltype(token)&&>(token));
        SliceMerge{p, shared, worker, tile_in_unit, static_cast<int>(threadIdx.x)}.template run<Element>();
    }
    // A CTA's barriers must outlive its peer's last arrival on them.
    sync_cluster<kCluster>();
}

}  // namespace flashmla::backends::sm90::decode_dense
