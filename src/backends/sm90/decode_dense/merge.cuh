// Merge of split units inside the kernel: every worker that has a piece of a unit merges an equal slice of its columns and rows,
// after all pieces are written. The launch is cooperative, so waiting for other CTAs is safe; workers end their ranges at about
// the same time, so it is short. Saves the launch and the cold start of a merge kernel.
#pragma once

#include <cuda_fp16.h>

#include "backends/sm90/decode_dense/params.hpp"
#include "backends/sm90/decode_dense/scores.cuh"
#include "backends/sm90/decode_dense/shared.cuh"
#include "combine/partials.hpp"
#include "core/planted_fault.hpp"
#include "gpu/signals.cuh"

namespace flashmla::backends::sm90::decode_dense {

inline constexpr int kMergeThreads = kThreads;
inline constexpr int kMaxSplits = 132;     // pieces of a unit: one a worker
inline constexpr int kLseParts = kMergeThreads / kRowTile;
inline constexpr int kMergeUnroll = 8;

// Scratch of the merge, in the ring's memory, which nobody uses any more.
struct MergeScratch {
    float weight[kMaxSplits][2][kRowTile];  // [piece][column half][row]: 2^(lse - total + exponent)
    float top[kLseParts][kRowTile];
    float sum[kLseParts][kRowTile];
};
static_assert(sizeof(MergeScratch) <= sizeof(Shared::pairs));

struct SliceMerge {
    const Params& p;
    Shared& shared;
    int worker;
    int tile_in_unit;
    int thread;  // of kMergeThreads

    __device__ __forceinline__ MergeScratch& scratch() { return *reinterpret_cast<MergeScratch*>(shared.pairs[0]); }
    __device__ __forceinline__ void sync() { __syncthreads(); }

    __device__ __forceinline__ long long tile_of(const SharedUnit& unit, int piece) const {
        if (core::planted(core::PlantedFault::kSplitMergedTwice) && piece > 0) --piece;
        const int slot = piece == 0 ? plan::left_slot(unit.first_worker) : plan::entered_slot(unit.first_worker + piece);
        return static_cast<long long>(slot) * p.work.row_tiles_per_unit + tile_in_unit;
    }

    // Weights of every piece for every row; returns, in the first 64 threads, the row's log-sum-exp.
    __device__ __forceinline__ float find_weights(const SharedUnit& unit) {
        const int row = thread % kRowTile;
        const int part = thread / kRowTile;
        float top = -kInfinity;
        for (int k = part; k < unit.count; k += kLseParts) top = fmaxf(top, __ldcg(&p.partial_lse[tile_of(unit, k) * kRowTile + row]));
        float sum = 0.0f;
        for (int k = part; k < unit.count; k += kLseParts) {
            const float lse = __ldcg(&p.partial_lse[tile_of(unit, k) * kRowTile + row]);
            sum += lse == -kInfinity ? 0.0f : exp2f(lse - top);
        }
        scratch().top[part][row] = top;
        scratch().sum[part][row] = sum;
        sync();
        float all_top = -kInfinity;
#pragma unroll
        for (int i = 0; i < kLseParts; ++i) all_top = fmaxf(all_top, scratch().top[i][row]);
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < kLseParts; ++i) {
            if (scratch().sum[i][row] != 0.0f) total += scratch().sum[i][row] * exp2f(scratch().top[i][row] - all_top);
        }
        const float lse_log2 = total == 0.0f ? -kInfinity : all_top + log2f(total);
        for (int k = part; k < unit.count; k += kLseParts) {
            const long long tile = tile_of(unit, k);
            const float lse = __ldcg(&p.partial_lse[tile * kRowTile + row]);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float exponent = __ldcg(&p.partial_exponent[(tile * 2 + half) * kRowTile + row]);
                scratch().weight[k][half][row] = lse == -kInfinity ? 0.0f : exp2f(lse - lse_log2) * exp2f(exponent);
            }
        }
        sync();
        return lse_log2;
    }

    __device__ __forceinline__ void write_lse(const SharedUnit& unit, float lse_log2) {
        const int row_tile = p.work.first_row_tile(unit.unit) + tile_in_unit;
        const PieceRecord record{unit.request, p.work.kv_head(unit.unit), p.work.rows.first_token(row_tile),
                                 p.work.rows.first_head(row_tile)};
        store_lse(p, record, thread, lse_log2);
    }

    // This worker's slice of the row tile's packets.
    template <class Element>
    __device__ __forceinline__ void merge_slice(const SharedUnit& unit) {
        const int own = worker - unit.first_worker;
        const int begin = combine::kPackets * own / unit.count;
        const int end = combine::kPackets * (own + 1) / unit.count;
        const core::RowTiling& rows = p.work.rows;
        const int row_tile = p.work.first_row_tile(unit.unit) + tile_in_unit;
        const int first_token = rows.first_token(row_tile);
        const int first_head = rows.first_head(row_tile);
        const long long kv_first_head = p.work.kv_head(unit.unit) * rows.heads;
#pragma unroll 1
        for (int index = begin + thread; index < end; index += kMergeThreads) {
            const combine::Packet packet(index);
            float merged[8] = {};
#pragma unroll 1
            for (int base = 0; base < unit.count; base += kMergeUnroll) {
                uint4 parts[kMergeUnroll];
#pragma unroll
                for (int u = 0; u < kMergeUnroll; ++u) {
                    if (base + u < unit.count) {
                        parts[u] = __ldcg(static_cast<const uint4*>(p.partial_out) +
                                          tile_of(unit, base + u) * combine::kPackets + index);
                    }
                }
#pragma unroll
                for (int u = 0; u < kMergeUnroll; ++u) {
                    if (base + u >= unit.count) break;
                    const float (&weight)[kRowTile] = scratch().weight[base + u][packet.half()];
                    const float w[2] = {weight[packet.row(0)], weight[packet.row(1)]};
                    const unsigned int words[4] = {parts[u].x, parts[u].y, parts[u].z, parts[u].w};
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const float2 values = __half22float2(reinterpret_cast<const __half2&>(words[i]));
                        merged[2 * i] += w[i % 2] * values.x;
                        merged[2 * i + 1] += w[i % 2] * values.y;
                    }
                }
            }
#pragma unroll
            for (int upper = 0; upper < 2; ++upper) {
                const int r = packet.row(upper);
                const int token = first_token + r / rows.tile_heads;
                const int head = first_head + r % rows.tile_heads;
                if (r >= rows.tile_heads * rows.tokens_per_tile || token >= rows.s_q || head >= rows.heads) continue;
                unsigned short* out = static_cast<unsigned short*>(p.out_base) + unit.request * p.out_b + token * p.out_token +
                                      (kv_first_head + head) * p.out_head + packet.column();
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    *reinterpret_cast<unsigned int*>(out + 8 * half) =
                        gpu::pack<Element>(merged[4 * half + 2 * upper], merged[4 * half + 2 * upper + 1]);
                }
            }
        }
    }

    template <class Element>
    __device__ __forceinline__ void run() {
        sync();  // the ring's last reader is done with it
#pragma unroll 1
        for (int side = 0; side < 2; ++side) {
            const SharedUnit unit = side == 0 ? shared.entered : shared.left;
            if (unit.count == 0) continue;
            for (int i = thread; i < 3 * unit.count; i += kMergeThreads) {
                gpu::await_signal(&p.signals[tile_of(unit, i / 3) * 3 + i % 3]);
            }
            sync();
            const float lse_log2 = find_weights(unit);
            if (worker == unit.first_worker && thread < kRowTile) write_lse(unit, lse_log2);
            merge_slice<Element>(unit);
            sync();  // the scratch is free again
        }
    }
};

}  // namespace flashmla::backends::sm90::decode_dense
