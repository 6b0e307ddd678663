#include "combine/merge_splits.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "combine/partials.hpp"
#include "core/planted_fault.hpp"
#include "core/problem.hpp"
#include "gpu/error.hpp"

namespace flashmla::combine {
namespace {

constexpr int kThreads = 256;
constexpr int kCtasPerSm = 3;
constexpr int kItemsPerTile = kPackets / kThreads;
constexpr int kUnroll = 4;  // chunks whose loads are in flight together
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

// The chunks of one row tile.
struct Chunks {
    int request, unit, count;
    long long first_slot;
    int tile_in_unit;

    __device__ __forceinline__ long long tile(const MergeParams& p, int k) const {
        if (core::planted(core::PlantedFault::kSplitMergedTwice) && k > 0) --k;
        return (first_slot + k) * p.work.row_tiles_per_unit + tile_in_unit;
    }
};

// Two rows' running merge: value = sum / total at scale 2^top.
struct Running {
    float top[2] = {-kInfinity, -kInfinity};
    float total[2] = {0.0f, 0.0f};
    float sum[8] = {};  // as in a packet

    __device__ __forceinline__ void add(const float (&lse)[2], const float (&exponent)[2], const uint4& packet) {
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
            total[row] = total[row] * old_scale[row] + own;
            top[row] = raised;
        }
        const unsigned int words[4] = {packet.x, packet.y, packet.z, packet.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float2 values = __half22float2(reinterpret_cast<const __half2&>(words[i]));
            sum[2 * i] = sum[2 * i] * old_scale[i % 2] + new_scale[i % 2] * values.x;
            sum[2 * i + 1] = sum[2 * i + 1] * old_scale[i % 2] + new_scale[i % 2] * values.y;
        }
    }
};

__device__ __forceinline__ Running merge_chunks(const MergeParams& p, const Chunks& chunks, int index) {
    const Packet packet(index);
    Running running;
    for (int base = 0; base < chunks.count; base += kUnroll) {
        uint4 packets[kUnroll];
        float4 rows[kUnroll][2];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            if (base + u >= chunks.count) break;
            const long long tile = chunks.tile(p, base + u);
            packets[u] = __ldcg(static_cast<const uint4*>(p.partial_out) + tile * kPackets + index);
#pragma unroll
            for (int row = 0; row < 2; ++row) {
                rows[u][row] =
                    __ldcg(reinterpret_cast<const float4*>(p.partial_rows) + tile * kRowTile + packet.row(row));
            }
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            if (base + u >= chunks.count) break;
            const float4(&r)[2] = rows[u];
            const float lse[2] = {r[0].x, r[1].x};
            const float exponent[2] = {packet.half() == 0 ? r[0].y : r[0].z, packet.half() == 0 ? r[1].y : r[1].z};
            running.add(lse, exponent, packets[u]);
        }
    }
    return running;
}

template <class Element>
__device__ __forceinline__ void store(const MergeParams& p, const Chunks& chunks, int index, const Running& running) {
    const Packet packet(index);
    const core::RowTiling& rows = p.work.rows;
    const int row_tile = p.work.first_row_tile(chunks.unit) + chunks.tile_in_unit;
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
        const int r = packet.row(upper);
        const int token = rows.first_token(row_tile) + rows.token_of(r);
        const int head_in_group = rows.first_head(row_tile) + rows.head_of(r);
        if (r >= rows.tile_heads * rows.tokens_per_tile || token >= rows.s_q || head_in_group >= rows.heads) continue;
        const long long head = p.work.kv_head(chunks.unit) * rows.heads + head_in_group;
        const bool empty = running.top[upper] == -kInfinity;
        const float inverse = empty ? 0.0f : 1.0f / running.total[upper];
        unsigned short* out = static_cast<unsigned short*>(p.out) + chunks.request * p.out_b + token * p.out_token +
                              head * p.out_head + packet.column();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float* v = &running.sum[4 * half + 2 * upper];
            *reinterpret_cast<unsigned int*>(out + 8 * half) = pack(v[0] * inverse, v[1] * inverse, Element{});
        }
        if (packet.column() == 0) {
            p.lse[chunks.request * p.lse_b + head * p.lse_head + token * p.lse_token] =
                empty ? kInfinity : (running.top[upper] + log2f(running.total[upper])) * kLn2;
        }
    }
}

template <class Element>
__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    flash_fwd_mla_combine_kernel(const __grid_constant__ MergeParams p) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const long long per_unit = static_cast<long long>(p.work.row_tiles_per_unit) * kItemsPerTile;
    const long long items = per_unit * p.work.b * p.work.units();
    for (long long item = blockIdx.x; item < items; item += gridDim.x) {
        const int request = static_cast<int>(item / per_unit / p.work.units());
        const int unit = static_cast<int>(item / per_unit % p.work.units());
        const int len = core::request_length(p.lengths, p.lengths_are_cumulative, p.capacity, request);
        const int count = core::ceil_div(plan::unit_key_tiles(p.work, len, unit), p.work.chunk_tiles);
        if (count <= 1) continue;
        const int within = static_cast<int>(item % per_unit);
        const int extra = core::planted(core::PlantedFault::kSplitMergedTwice) ? 1 : 0;
        const Chunks chunks{request, unit, count + extra, plan::chunk_slot(p.work, request, unit, 0, p.max_chunks),
                            within / kItemsPerTile};
        const int index = within % kItemsPerTile * kThreads + static_cast<int>(threadIdx.x);
        if (Packet(index).row(0) >= p.work.rows.tile_heads * p.work.rows.tokens_per_tile) continue;  // not written
        store<Element>(p, chunks, index, merge_chunks(p, chunks, index));
    }
}

}  // namespace

Status launch_merge(const MergeParams& params, DType dtype, int num_sms, StreamHandle stream) {
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
