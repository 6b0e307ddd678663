// Which units were split, from the workers' cuts.
#pragma once

#include "combine/merge_splits.hpp"

namespace flashmla::combine {

inline constexpr int kMaxWorkers = 512;
inline constexpr int kManySplits = 8;  // from here on the eight warps of a CTA share the splits of one item

// An item is what one CTA merges at a time: of a row tile, 16 rows of one column quarter (one warp of the accumulator layout), a
// step of 16 columns a warp; or, with many splits, one such step with the splits dealt out to the warps.
inline constexpr int kItemsFewSplits = 16;
inline constexpr int kItemsManySplits = 128;

__device__ __forceinline__ int items_per_tile(int splits) {
    return splits >= kManySplits ? kItemsManySplits : kItemsFewSplits;
}

// Balanced schedule: worker boundaries strictly inside a unit name the units that were split. A run of such boundaries, from
// `first` to `last`, is one unit, begun by worker first - 1. In worker order, which every CTA must agree on.
struct SplitList {
    int first[kMaxWorkers];
    int last[kMaxWorkers];
    int items_before[kMaxWorkers + 1];
    int size;
};

__device__ __forceinline__ bool same_unit(const plan::Cut& a, const plan::Cut& b) {
    return a.request == b.request && a.unit == b.unit;
}

// One warp. `cuts` holds num_workers + 1 entries.
__device__ __forceinline__ void list_splits(const plan::Cut* cuts, int num_workers, int tiles, SplitList& list) {
    const int lane = threadIdx.x % 32;
    const unsigned int below = (1u << lane) - 1;
    int firsts = 0;
    int lasts = 0;
    for (int base = 1; base < num_workers; base += 32) {
        const int w = base + lane;
        const bool inside = w < num_workers && cuts[w].tile > 0;
        const bool first = inside && !(cuts[w - 1].tile > 0 && same_unit(cuts[w - 1], cuts[w]));
        const bool last = inside && !(cuts[w + 1].tile > 0 && same_unit(cuts[w + 1], cuts[w]));
        const unsigned int first_lanes = __ballot_sync(~0u, first);
        const unsigned int last_lanes = __ballot_sync(~0u, last);
        if (first) list.first[firsts + __popc(first_lanes & below)] = w;
        if (last) list.last[lasts + __popc(last_lanes & below)] = w;
        firsts += __popc(first_lanes);
        lasts += __popc(last_lanes);
    }
    __syncwarp();
    int items = 0;
    for (int base = 0; base < firsts; base += 32) {
        const int i = base + lane;
        const int own = i < firsts ? tiles * items_per_tile(list.last[i] - list.first[i] + 2) : 0;
        int inclusive = own;
        for (int step = 1; step < 32; step *= 2) {
            const int other = __shfl_up_sync(~0u, inclusive, step);
            if (lane >= step) inclusive += other;
        }
        if (i < firsts) list.items_before[i] = items + inclusive - own;
        items += __shfl_sync(~0u, inclusive, 31);
    }
    if (lane == 0) {
        list.items_before[firsts] = items;
        list.size = firsts;
    }
}

// The entry that item i belongs to.
__device__ __forceinline__ int find_entry(const SplitList& list, int item) {
    int low = 0;
    int high = list.size;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        (list.items_before[middle] <= item ? low : high) = middle;
    }
    return low;
}

}  // namespace flashmla::combine
