#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "combine/merge_splits.hpp"
#include "core/planted_fault.hpp"
#include "core/problem.hpp"
#include "gpu/error.hpp"

namespace flashmla::combine {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxWorkers = 1024;
constexpr int kRowTile = 64;
constexpr int kRowGroups = 4;      // of 16 rows: one warp of the accumulator layout
constexpr int kQuarters = 4;       // of 128 columns
constexpr int kSteps = 16;         // of 8 columns in a quarter
constexpr int kItemsPerTile = kRowGroups * kQuarters * kSteps;
constexpr int kManySplits = 8;     // from here on one step an item instead of four: more warps, shorter chains
constexpr int kFewSplitsSteps = 4;
constexpr float kInfinity = __builtin_huge_valf();
constexpr float kLn2 = 0.69314718055994530942f;

__device__ __forceinline__ unsigned int pack(float low, float high, __nv_bfloat16) {
    const __nv_bfloat162 packed = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const unsigned int&>(packed);
}
__device__ __forceinline__ unsigned int pack(float low, float high, __half) {
    const __half2 packed = __floats2half2_rn(low, high);
    return reinterpret_cast<const unsigned int&>(packed);
}

// The splits of one unit. Balanced: what worker `first` left, then what its successors entered. Invariant: its chunks.
struct Splits {
    int request, unit;
    int count;
    int first;  // worker, or slot of chunk 0
    bool invariant;

    __device__ __forceinline__ long long slot(int k) const {
        if (core::planted(core::PlantedFault::kSplitMergedTwice) && k > 0) --k;
        if (invariant) return first + k;
        return k == 0 ? plan::left_slot(first) : plan::entered_slot(first + k);
    }
};

// One warp: 16 rows of a row tile x `steps` x 8 columns.
template <class Element>
__device__ __forceinline__ void merge_item(const MergeParams& p, const Splits& splits, int tile_in_unit, int item) {
    const int steps = splits.count >= kManySplits ? 1 : kFewSplitsSteps;
    if (item >= kItemsPerTile / steps) return;
    const int first_step = item % (kSteps / steps) * steps;
    const int group = item / (kSteps / steps) % kRowGroups;
    const int quarter = item / (kSteps / steps) / kRowGroups;
    const int lane = threadIdx.x % 32;
    const int rows_at[2] = {16 * group + lane / 4, 16 * group + lane / 4 + 8};
    const int extra = core::planted(core::PlantedFault::kSplitMergedTwice) ? 1 : 0;
    const int count = splits.count + extra;

    const auto partial_tile = [&](int k) { return splits.slot(k) * p.work.row_tiles_per_unit + tile_in_unit; };
    const auto lse_of = [&](int k, int row) { return __ldg(&p.partial_lse[partial_tile(k) * kRowTile + rows_at[row]]); };

    // Whole-row log-sum-exp; the four lanes of a row take every fourth split each.
    float lse_log2[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        float top = -kInfinity;
        for (int k = lane % 4; k < count; k += 4) top = fmaxf(top, lse_of(k, row));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        float sum = 0.0f;
        if (top > -kInfinity) {
            for (int k = lane % 4; k < count; k += 4) sum += exp2f(lse_of(k, row) - top);
        }
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        lse_log2[row] = sum > 0.0f || sum != sum ? top + log2f(sum) : -kInfinity;
    }

    float4 merged[kFewSplitsSteps] = {};
    const float4* partials = reinterpret_cast<const float4*>(p.partial_out);
    const int within = (quarter * kSteps + first_step) * 128 + 32 * group + lane;
#pragma unroll 4
    for (int k = 0; k < count; ++k) {
        float weight[2];
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            weight[row] = lse_log2[row] == -kInfinity ? 0.0f : exp2f(lse_of(k, row) - lse_log2[row]);
        }
        const float4* source = partials + partial_tile(k) * (kRowTile * kQuarters * kSteps * 2) + within;
#pragma unroll
        for (int i = 0; i < kFewSplitsSteps; ++i) {
            if (i >= steps) break;
            const float4 part = __ldg(source + i * 128);
            merged[i].x += weight[0] * part.x;
            merged[i].y += weight[0] * part.y;
            merged[i].z += weight[1] * part.z;
            merged[i].w += weight[1] * part.w;
        }
    }

    const core::RowTiling& rows = p.work.rows;
    const int row_tile = p.work.first_row_tile(splits.unit) + tile_in_unit;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        const int r = rows_at[row];
        const int token = rows.first_token(row_tile) + r / rows.tile_heads;
        const int head_in_group = rows.first_head(row_tile) + r % rows.tile_heads;
        if (r >= rows.tile_heads * rows.tokens_per_tile || token >= rows.s_q || head_in_group >= rows.heads) continue;
        const long long head = p.work.kv_head(splits.unit) * rows.heads + head_in_group;
        const long long base = splits.request * p.out_b + token * p.out_token + head * p.out_head;
        for (int i = 0; i < steps; ++i) {
            const int column = 128 * quarter + 8 * (first_step + i) + 2 * (lane % 4);
            const float4 m = merged[i];
            const unsigned int packed = row == 0 ? pack(m.x, m.y, Element{}) : pack(m.z, m.w, Element{});
            *reinterpret_cast<unsigned int*>(static_cast<unsigned short*>(p.out) + base + column) = packed;
        }
        if (quarter == 0 && first_step == 0 && lane % 4 == 0) {
            p.lse[splits.request * p.lse_b + head * p.lse_head + token * p.lse_token] =
                lse_log2[row] == -kInfinity ? kInfinity : lse_log2[row] * kLn2;
        }
    }
}

// Balanced schedule: worker boundaries strictly inside a unit name the units that were split. A run of such boundaries, from
// `first` to `last`, is one unit, begun by worker first - 1. In worker order, which every CTA must agree on.
struct SplitList {
    int first[kMaxWorkers];
    int last[kMaxWorkers];
    int size;
};

__device__ __forceinline__ bool same_unit(const plan::Cut& a, const plan::Cut& b) {
    return a.request == b.request && a.unit == b.unit;
}

// One warp. `cuts` holds num_workers + 1 entries.
__device__ void list_splits(const MergeParams& p, const plan::Cut* cuts, SplitList& list) {
    const int lane = threadIdx.x % 32;
    int firsts = 0;
    int lasts = 0;
    for (int base = 1; base < p.num_workers; base += 32) {
        const int w = base + lane;
        const bool inside = w < p.num_workers && cuts[w].tile > 0;
        const bool first = inside && !(cuts[w - 1].tile > 0 && same_unit(cuts[w - 1], cuts[w]));
        const bool last = inside && !(cuts[w + 1].tile > 0 && same_unit(cuts[w + 1], cuts[w]));
        const unsigned int first_lanes = __ballot_sync(~0u, first);
        const unsigned int last_lanes = __ballot_sync(~0u, last);
        const unsigned int below = (1u << lane) - 1;
        if (first) list.first[firsts + __popc(first_lanes & below)] = w;
        if (last) list.last[lasts + __popc(last_lanes & below)] = w;
        firsts += __popc(first_lanes);
        lasts += __popc(last_lanes);
    }
    if (lane == 0) list.size = firsts;
}

template <class Element>
__global__ void __launch_bounds__(kThreads) flash_fwd_mla_combine_kernel(const __grid_constant__ MergeParams p) {
    __shared__ plan::Cut cuts[kMaxWorkers + 1];
    __shared__ SplitList list;
    const int warp = blockIdx.x * kWarps + threadIdx.x / 32;
    const int warps = gridDim.x * kWarps;
    const int tiles = p.work.row_tiles_per_unit;

    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (p.work.chunk_tiles > 0) {
        const long long items = static_cast<long long>(p.work.b) * p.work.units() * tiles * kItemsPerTile;
        for (long long i = warp; i < items; i += warps) {
            const long long unit_index = i / (tiles * kItemsPerTile);
            const int request = static_cast<int>(unit_index / p.work.units());
            const int unit = static_cast<int>(unit_index % p.work.units());
            const int len = core::request_length(p.lengths, p.lengths_are_cumulative, p.capacity, request);
            const int chunks = core::ceil_div(plan::unit_key_tiles(p.work, len, unit), p.work.chunk_tiles);
            if (chunks <= 1) continue;
            const Splits splits{request, unit, chunks, plan::chunk_slot(p.work, request, unit, 0, p.max_chunks), true};
            merge_item<Element>(p, splits, static_cast<int>(i / kItemsPerTile % tiles), static_cast<int>(i % kItemsPerTile));
        }
        return;
    }
    for (int w = threadIdx.x; w <= p.num_workers; w += kThreads) cuts[w] = p.cuts[w];
    __syncthreads();
    if (threadIdx.x < 32) list_splits(p, cuts, list);
    __syncthreads();
    const int items = list.size * tiles * kItemsPerTile;
    for (int i = warp; i < items; i += warps) {
        const int at = i / (tiles * kItemsPerTile);
        const int first = list.first[at];
        const Splits splits{cuts[first].request, cuts[first].unit, list.last[at] - first + 2, first - 1, false};
        merge_item<Element>(p, splits, i / kItemsPerTile % tiles, i % kItemsPerTile);
    }
}

}  // namespace

Status launch_merge(const MergeParams& params, DType dtype, int num_sms, StreamHandle stream) {
    if (params.num_workers > kMaxWorkers) {
        return unsupported("num_workers: " + std::to_string(params.num_workers) + " is more than the merge's " +
                           std::to_string(kMaxWorkers));
    }
    cudaLaunchAttribute dependent{};
    dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    dependent.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(2 * num_sms);
    config.blockDim = dim3(kThreads);
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &dependent;
    config.numAttrs = 1;
    if (dtype == DType::kFloat16) {
        FLASHMLA_CUDA_TRY(cudaLaunchKernelEx(&config, flash_fwd_mla_combine_kernel<__half>, params));
    } else {
        FLASHMLA_CUDA_TRY(cudaLaunchKernelEx(&config, flash_fwd_mla_combine_kernel<__nv_bfloat16>, params));
    }
    return {};
}

}  // namespace flashmla::combine
