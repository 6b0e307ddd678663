#include "combine/merge_splits.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <string>

#include "combine/split_list.cuh"
#include "core/planted_fault.hpp"
#include "core/problem.hpp"
#include "gpu/error.hpp"

namespace flashmla::combine {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kCtasPerSm = 3;
constexpr int kRowTile = 64;
constexpr int kStepsPerQuarter = 8;  // of 16 columns
constexpr int kUnroll = 4;           // splits whose loads are in flight together
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
    long long first;  // worker, or slot of chunk 0
    bool invariant;

    __device__ __forceinline__ long long slot(int k) const {
        if (core::planted(core::PlantedFault::kSplitMergedTwice) && k > 0) --k;
        if (invariant) return first + k;
        return k == 0 ? plan::left_slot(static_cast<int>(first)) : plan::entered_slot(static_cast<int>(first) + k);
    }
};

// Where a lane works: of a row tile, two rows and a step of 16 columns.
struct Place {
    long long tile_in_unit;
    int group;    // of 16 rows
    int quarter;  // of 128 columns
    int step;     // of 16 columns
    int lane;

    __device__ __forceinline__ int row(int upper) const { return 16 * group + lane / 4 + 8 * upper; }
};

// Two rows' running merge: value = sum / total at scale 2^top.
struct Running {
    float top[2] = {-kInfinity, -kInfinity};
    float total[2] = {0.0f, 0.0f};
    float sum[8] = {};  // as in partial_out

    // Adds a partial (or another running merge) of weight total * 2^lse whose values are held divided by 2^exponent.
    __device__ __forceinline__ void add(const float (&lse)[2], const float (&weight)[2], const float (&exponent)[2],
                                        const float (&values)[8]) {
        float old_scale[2];
        float new_scale[2];
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            // A row without keys adds nothing, and must not turn the scale of an empty sum into NaN.
            const bool empty = lse[row] == -kInfinity;
            const float raised = empty ? top[row] : fmaxf(top[row], lse[row]);
            old_scale[row] = top[row] == -kInfinity ? 0.0f : exp2f(top[row] - raised);
            const float own = empty ? 0.0f : exp2f(lse[row] - raised);
            new_scale[row] = empty ? 0.0f : own * exp2f(exponent[row]);
            total[row] = total[row] * old_scale[row] + own * weight[row];
            top[row] = raised;
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = i / 2 % 2;
            sum[i] = sum[i] * old_scale[row] + (new_scale[row] == 0.0f ? 0.0f : new_scale[row] * values[i]);
        }
    }
};

// Adds splits first, first + stride, .. < count.
__device__ __forceinline__ void add_splits(const MergeParams& p, const Splits& splits, const Place& at, int first, int stride,
                                           int count, Running& running) {
    for (int base = first; base < count; base += kUnroll * stride) {
        uint4 values[kUnroll];
        float lse[kUnroll][2];
        float exponent[kUnroll][2];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int k = base + u * stride;
            if (k >= count) break;
            const long long tile = splits.slot(k) * p.work.row_tiles_per_unit + at.tile_in_unit;
            values[u] = __ldg(static_cast<const uint4*>(p.partial_out) +
                              ((tile * 4 + at.quarter) * kStepsPerQuarter + at.step) * 128 + 32 * at.group + at.lane);
#pragma unroll
            for (int row = 0; row < 2; ++row) {
                lse[u][row] = __ldg(&p.partial_lse[tile * kRowTile + at.row(row)]);
                exponent[u][row] = __ldg(&p.partial_exponent[(tile * 2 + at.quarter / 2) * kRowTile + at.row(row)]);
            }
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            if (base + u * stride >= count) break;
            const unsigned int words[4] = {values[u].x, values[u].y, values[u].z, values[u].w};
            float unpacked[8];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float2 pair = __half22float2(reinterpret_cast<const __half2&>(words[i]));
                unpacked[2 * i] = pair.x;
                unpacked[2 * i + 1] = pair.y;
            }
            running.add(lse[u], {1.0f, 1.0f}, exponent[u], unpacked);
        }
    }
}

template <class Element>
__device__ __forceinline__ void store(const MergeParams& p, const Splits& splits, const Place& at, const Running& running) {
    const core::RowTiling& rows = p.work.rows;
    const int row_tile = p.work.first_row_tile(splits.unit) + static_cast<int>(at.tile_in_unit);
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
        const int r = at.row(upper);
        const int token = rows.first_token(row_tile) + r / rows.tile_heads;
        const int head_in_group = rows.first_head(row_tile) + r % rows.tile_heads;
        if (r >= rows.tile_heads * rows.tokens_per_tile || token >= rows.s_q || head_in_group >= rows.heads) continue;
        const long long head = p.work.kv_head(splits.unit) * rows.heads + head_in_group;
        const bool empty = running.top[upper] == -kInfinity;
        const float inverse = empty ? 0.0f : 1.0f / running.total[upper];
        unsigned short* out = static_cast<unsigned short*>(p.out) + splits.request * p.out_b + token * p.out_token +
                              head * p.out_head + 128 * at.quarter + 16 * at.step + 2 * (at.lane % 4);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float* v = &running.sum[4 * half + 2 * upper];
            *reinterpret_cast<unsigned int*>(out + 8 * half) = pack(v[0] * inverse, v[1] * inverse, Element{});
        }
        if (at.quarter == 0 && at.step == 0 && at.lane % 4 == 0) {
            p.lse[splits.request * p.lse_b + head * p.lse_head + token * p.lse_token] =
                empty ? kInfinity : (running.top[upper] + log2f(running.total[upper])) * kLn2;
        }
    }
}

// Results of the eight warps on their way to one of them.
struct Exchange {
    float sum[kWarps][8][32];
    float top[kWarps][2][32];
    float total[kWarps][2][32];
};

// All threads of the CTA.
template <class Element>
__device__ __forceinline__ void merge_item(const MergeParams& p, const Splits& splits, int item, Exchange& exchange) {
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int count = splits.count + (core::planted(core::PlantedFault::kSplitMergedTwice) ? 1 : 0);
    const int per_tile = items_per_tile(splits.count);
    const int within = item % per_tile;
    Running running;
    if (splits.count < kManySplits) {
        const Place at{item / per_tile, within % 4, within / 4, warp, lane};
        add_splits(p, splits, at, 0, 1, count, running);
        store<Element>(p, splits, at, running);
        return;
    }
    const Place at{item / per_tile, within % 4, within / 4 % 4, within / 16, lane};
    add_splits(p, splits, at, warp, kWarps, count, running);
    __syncthreads();  // the exchange of the item before has been read
#pragma unroll
    for (int i = 0; i < 8; ++i) exchange.sum[warp][i][lane] = running.sum[i];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        exchange.top[warp][row][lane] = running.top[row];
        exchange.total[warp][row][lane] = running.total[row];
    }
    __syncthreads();
    if (warp != 0) return;
    for (int w = 1; w < kWarps; ++w) {
        const float top[2] = {exchange.top[w][0][lane], exchange.top[w][1][lane]};
        const float total[2] = {exchange.total[w][0][lane], exchange.total[w][1][lane]};
        float sum[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[i] = exchange.sum[w][i][lane];
        running.add(top, total, {0.0f, 0.0f}, sum);
    }
    store<Element>(p, splits, at, running);
}

template <class Element>
__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    flash_fwd_mla_combine_kernel(const __grid_constant__ MergeParams p) {
    __shared__ plan::Cut cuts[kMaxWorkers + 1];
    __shared__ SplitList list;
    __shared__ Exchange exchange;
    const int tiles = p.work.row_tiles_per_unit;

    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (p.work.chunk_tiles > 0) {
        const long long per_unit = static_cast<long long>(tiles) * kItemsManySplits;
        const long long items = per_unit * p.work.b * p.work.units();
        for (long long i = blockIdx.x; i < items; i += gridDim.x) {
            const int request = static_cast<int>(i / per_unit / p.work.units());
            const int unit = static_cast<int>(i / per_unit % p.work.units());
            const int len = core::request_length(p.lengths, p.lengths_are_cumulative, p.capacity, request);
            const int chunks = core::ceil_div(plan::unit_key_tiles(p.work, len, unit), p.work.chunk_tiles);
            const int item = static_cast<int>(i % per_unit);
            if (chunks <= 1 || item >= tiles * items_per_tile(chunks)) continue;
            const Splits splits{request, unit, chunks, plan::chunk_slot(p.work, request, unit, 0, p.max_chunks), true};
            merge_item<Element>(p, splits, item, exchange);
        }
        return;
    }
    for (int w = threadIdx.x; w <= p.num_workers; w += kThreads) cuts[w] = p.cuts[w];
    __syncthreads();
    if (threadIdx.x < 32) list_splits(cuts, p.num_workers, tiles, list);
    __syncthreads();
    const int items = list.items_before[list.size];
    for (int i = blockIdx.x; i < items; i += gridDim.x) {
        const int entry = find_entry(list, i);
        const int first = list.first[entry];
        const Splits splits{cuts[first].request, cuts[first].unit, list.last[entry] - first + 2, first - 1, false};
        merge_item<Element>(p, splits, i - list.items_before[entry], exchange);
    }
}

}  // namespace

Status launch_merge(const MergeParams& params, DType dtype, int num_sms, StreamHandle stream) {
    if (params.num_workers > kMaxWorkers) {
        return unsupported("num_workers: got " + std::to_string(params.num_workers) + ", the merge takes at most " +
                           std::to_string(kMaxWorkers));
    }
    const void* kernel = dtype == DType::kFloat16
                             ? reinterpret_cast<const void*>(&flash_fwd_mla_combine_kernel<__half>)
                             : reinterpret_cast<const void*>(&flash_fwd_mla_combine_kernel<__nv_bfloat16>);
    // The same split of L1 and shared memory as the kernel before: changing it would wait for an idle SM.
    FLASHMLA_CUDA_TRY(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
    cudaLaunchAttribute dependent{};
    dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    dependent.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(kCtasPerSm * num_sms));
    config.blockDim = dim3(kThreads);
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &dependent;
    config.numAttrs = 1;
    MergeParams copy = params;
    void* arguments[] = {&copy};
    FLASHMLA_CUDA_TRY(cudaLaunchKernelExC(&config, kernel, arguments));
    return {};
}

}  // namespace flashmla::combine
