// The kernel: four warpgroups with one role each. The README has the timeline.
#pragma once

#include <cooperative_groups.h>

#include <cutlass/arch/reg_reconfig.h>
#include <cute/arch/cluster_sm90.hpp>

#include "backends/sm90/decode_dense/load.cuh"
#include "backends/sm90/decode_dense/merge.cuh"
#include "backends/sm90/decode_dense/publish.cuh"
#include "backends/sm90/decode_dense/scores.cuh"
#include "backends/sm90/decode_dense/values.cuh"
#include "backends/sm90/decode_dense/variants.hpp"
#include "gpu/jitter.cuh"

namespace flashmla::backends::sm90::decode_dense {

template <int kCluster>
__device__ __forceinline__ void init_barriers(Barriers& barriers) {
    constexpr int kWarps = 4 * gpu::kWarpArrivals;  // of a warpgroup
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
    barriers.registers_free.init(kWarps);
    barriers.registers_back.init(3 * kWarps);
    for (int slot = 0; slot < kQueueSlots; ++slot) {
        barriers.piece_full[slot].init(gpu::kWarpArrivals);
        barriers.piece_empty[slot].init(gpu::kWarpArrivals + 3 * kWarps);
    }
    cutlass::arch::fence_barrier_init();
}

// Where everybody learns that everybody's barriers are there; in a cluster without waiting, until `enter_cluster`.
// Execution only, no fence beyond the CTA: their initialisation has a fence of its own.
template <int kCluster>
__device__ __forceinline__ void announce_barriers() {
    __syncwarp();
    if constexpr (kCluster > 1) cute::cluster_arrive_relaxed();
}

template <int kCluster>
__device__ __forceinline__ void enter_cluster() {
    if constexpr (kCluster > 1) {
        cute::cluster_wait();
    } else {
        __syncthreads();
    }
}

// A warpgroup's warps meet between two changes of their registers: named barriers 4, 5, 6, beside 1 and 2 of the values
// warpgroups. Registers change hands at barriers too: taking them polls until there are enough, which costs everybody
// issue slots, and a first warpgroup without work could take its own back before the others had taken theirs.
__device__ __forceinline__ void sync_role(int role) {
    constexpr int kFirstRole = 3;
    cutlass::arch::NamedBarrier::sync(128, kFirstRole + role);
}

// Warps of the first warpgroup; the other two wait for the merge.
inline constexpr int kScheduleWarp = 1;
inline constexpr int kProducerWarp = 2;

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

    gpu::jitter<3>(warp);
    if (threadIdx.x == 0) init_barriers<kCluster>(shared.barriers);
    announce_barriers<kCluster>();
    if (warp == kScheduleWarp) find_range(p, shared, worker, tile_in_unit, lane);
    if (warp == kProducerWarp && lane == 0) prefetch_maps(p);
    enter_cluster<kCluster>();

    const int role = warp / 4;
    gpu::jitter<2>(20 + warp);
    if (role == 0) {
        PieceWriter queue{shared, lane};
        __syncwarp();
        // Before registers change hands, which takes a thousand cycles: everybody waits for the first piece.
        if (warp == kScheduleWarp && shared.range.own) {
            queue.announce();
            if (shared.queue[0].tile_begin < shared.queue[0].tile_end) ask_for_query(p, shared, shared.queue[0], lane);
        }
        __syncwarp();
        cutlass::arch::warpgroup_reg_dealloc<kProducerRegisters>();
        gpu::arrive_as_warp(shared.barriers.registers_free, lane);
        if (warp == kScheduleWarp) {
            Publisher{p, shared, worker, tile_in_unit, lane, queue, shared.range.own != 0}.run();
        } else if (warp == kProducerWarp) {
            Producer<kCluster, Variant::kPrefetch>{p, shared, rank, lane}.run();
        }
        shared.barriers.registers_back.wait(0);
        cutlass::arch::warpgroup_reg_alloc<kMergeRegisters>();
    } else if (role == 1) {
        shared.barriers.registers_free.wait(0);
        cutlass::arch::warpgroup_reg_alloc<kScoresRegisters>();
        Scores<Element, kCluster, Variant::kHoldValues>{p, shared, warp % 4, lane}.run();
        sync_role(role);
        cutlass::arch::warpgroup_reg_dealloc<kMergeRegisters>();
        gpu::arrive_as_warp(shared.barriers.registers_back, lane);
    } else if (role == 2) {
        shared.barriers.registers_free.wait(0);
        cutlass::arch::warpgroup_reg_alloc<kValuesRegisters>();
        Values<Element, kCluster, 0>{p, shared, tile_in_unit, warp % 4, lane}.run();
        sync_role(role);
        cutlass::arch::warpgroup_reg_dealloc<kMergeRegisters>();
        gpu::arrive_as_warp(shared.barriers.registers_back, lane);
    } else {
        shared.barriers.registers_free.wait(0);
        cutlass::arch::warpgroup_reg_alloc<kValuesRegisters>();
        Values<Element, kCluster, 1>{p, shared, tile_in_unit, warp % 4, lane}.run();
        sync_role(role);
        cutlass::arch::warpgroup_reg_dealloc<kMergeRegisters>();
        gpu::arrive_as_warp(shared.barriers.registers_back, lane);
    }
    __syncthreads();
    if (shared.range.splits) {
        gpu::jitter<3>(40 + warp);
        // Everybody's partial results are written; workers end at about the same time, so the wait is short.
        cooperative_groups::grid_group grid = cooperative_groups::this_grid();
        auto token = grid.barrier_arrive();
        SliceMerge merge{p, shared, worker, tile_in_unit, static_cast<int>(threadIdx.x)};
        if (merge.next_unit()) {
            grid.barrier_wait(static_cast<decltype(token)&&>(token));
#pragma unroll 1
            do {
                merge.template run<Element>();
            } while (merge.next_unit());
        }
    }
    gpu::jitter<3>(60 + warp);
}

}  // namespace flashmla::backends::sm90::decode_dense
