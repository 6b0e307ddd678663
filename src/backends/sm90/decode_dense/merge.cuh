// Merge of split units inside the kernel: every worker that has a piece of a unit merges an equal slice of its columns
// and rows, after all pieces are written. The launch is cooperative, so waiting for other CTAs is safe; workers end
// their ranges at about the same time, so it is short. Saves the launch and the cold start of a merge kernel.
#pragma once

#include <cuda_fp16.h>

#include "backends/sm90/decode_dense/params.hpp"
#include "backends/sm90/decode_dense/results.cuh"
#include "backends/sm90/decode_dense/shared.cuh"
#include "combine/partials.hpp"
#include "core/planted_fault.hpp"
#include "gpu/signals.cuh"

namespace flashmla::backends::sm90::decode_dense {

inline constexpr int kWeightParts = kThreads / kRowTile;  // threads that share a row's pieces
inline constexpr int kPiecesInFlight = 8;                 // packets a thread has loads of in flight

// Scratch of the merge, in the ring's memory, which nobody uses any more.
struct MergeScratch {
    // [piece][column half][row]: first the exponent, then 2^(lse - total + exponent)
    float weight[kMaxWorkers][2][kRowTile];
    float lse[kMaxWorkers][kRowTile];
    float top[kWeightParts][kRowTile];
    float sum[kWeightParts][kRowTile];
    float share[kThreads][8];  // merged values of a thread's share of the pieces, on their way to one thread
};
static_assert(sizeof(MergeScratch) <= sizeof(Shared::pairs));

struct SliceMerge {
    const Params& p;
    Shared& shared;
    int worker;
    int tile_in_unit;
    int thread;

    __device__ __forceinline__ MergeScratch& scratch() { return *reinterpret_cast<MergeScratch*>(shared.pairs[0]); }

    __device__ __forceinline__ long long tile_of(const SharedUnit& unit, int piece) const {
        if (core::planted(core::PlantedFault::kSplitMergedTwice) && piece > 0) --piece;
        const auto slot =
            piece == 0 ? plan::left_slot(unit.first_worker) : plan::entered_slot(unit.first_worker + piece);
        return static_cast<long long>(slot) * p.work.row_tiles_per_unit + tile_in_unit;
    }

    // Weights of every piece for every row; returns the log-sum-exp of row thread % 64.
    __device__ __forceinline__ float find_weights(const SharedUnit& unit) {
        const int row = thread % kRowTile;
        const int part = thread / kRowTile;
        float top = -kInfinity;
#pragma unroll 4  // loads in flight together
        for (int k = part; k < unit.count; k += kWeightParts) {
            const long long tile = tile_of(unit, k);
            const float lse = __ldcg(&p.partial_lse[tile * kRowTile + row]);
            scratch().weight[k][0][row] = __ldcg(&p.partial_exponent[tile * 2 * kRowTile + row]);
            scratch().weight[k][1][row] = __ldcg(&p.partial_exponent[(tile * 2 + 1) * kRowTile + row]);
            scratch().lse[k][row] = lse;
            top = fmaxf(top, lse);
        }
        float sum = 0.0f;
#pragma unroll 1
        for (int k = part; k < unit.count; k += kWeightParts) {
            const float lse = scratch().lse[k][row];
            sum += lse == -kInfinity ? 0.0f : exp2f(lse - top);
        }
        scratch().top[part][row] = top;
        scratch().sum[part][row] = sum;
        __syncthreads();
        float all_top = -kInfinity;
        for (int i = 0; i < kWeightParts; ++i) all_top = fmaxf(all_top, scratch().top[i][row]);
        float total = 0.0f;
        for (int i = 0; i < kWeightParts; ++i) {
            if (scratch().sum[i][row] != 0.0f) total += scratch().sum[i][row] * exp2f(scratch().top[i][row] - all_top);
        }
        const float lse_log2 = total == 0.0f ? -kInfinity : all_top + log2f(total);
#pragma unroll 1
        for (int k = part; k < unit.count; k += kWeightParts) {
            const float lse = scratch().lse[k][row];
            const float weight = lse == -kInfinity ? 0.0f : exp2f(lse - lse_log2);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                scratch().weight[k][half][row] = weight * exp2f(scratch().weight[k][half][row]);
            }
        }
        __syncthreads();
        return lse_log2;
    }

    __device__ __forceinline__ PieceRecord record_of(const SharedUnit& unit) const {
        const int row_tile = p.work.first_row_tile(unit.unit) + tile_in_unit;
        return {unit.request, p.work.kv_head(unit.unit), p.work.rows.first_token(row_tile),
                p.work.rows.first_head(row_tile)};
    }

    __device__ __forceinline__ void add(const SharedUnit& unit, int piece, const combine::Packet& packet,
                                        const uint4& part, float (&merged)[8]) {
        const float(&weight)[kRowTile] = scratch().weight[piece][packet.half()];
        const float w[2] = {weight[packet.row(0)], weight[packet.row(1)]};
        const unsigned int words[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float2 values = __half22float2(reinterpret_cast<const __half2&>(words[i]));
            merged[2 * i] += w[i % 2] * values.x;
            merged[2 * i + 1] += w[i % 2] * values.y;
        }
    }

    template <class Element>
    __device__ __forceinline__ void store(const PieceRecord& record, const combine::Packet& packet,
                                          const float (&merged)[8]) {
        const core::RowTiling& rows = p.work.rows;
#pragma unroll
        for (int upper = 0; upper < 2; ++upper) {
            const int r = packet.row(upper);
            const int token = record.first_token + r / rows.tile_heads;
            const int head = record.first_head + r % rows.tile_heads;
            if (r >= rows.tile_heads * rows.tokens_per_tile || token >= rows.s_q || head >= rows.heads) continue;
            unsigned short* out = static_cast<unsigned short*>(p.out_base) + record.request * p.out_b +
                                  token * p.out_token + (record.kv_head * rows.heads + head) * p.out_head +
                                  packet.column();
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                *reinterpret_cast<unsigned int*>(out + 8 * half) =
                    gpu::pack<Element>(merged[4 * half + 2 * upper], merged[4 * half + 2 * upper + 1]);
            }
        }
    }

    __device__ __forceinline__ const uint4* packet_of(const SharedUnit& unit, int piece, int index) const {
        return static_cast<const uint4*>(p.partial_out) + tile_of(unit, piece) * combine::kPackets + index;
    }

    // The slice [begin, end) of the row tile's packets when two workers share it: four packets of both at a time.
    template <class Element>
    __device__ __forceinline__ void merge_two(const SharedUnit& unit, const PieceRecord& record, int begin, int end) {
        constexpr int kAtOnce = 4;
#pragma unroll 1
        for (int first = begin + thread; first < end; first += kAtOnce * kThreads) {
            uint4 parts[kAtOnce][2];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
                for (int k = 0; k < 2; ++k) {
                    if (first + i * kThreads < end) parts[i][k] = __ldcg(packet_of(unit, k, first + i * kThreads));
                }
            }
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                if (first + i * kThreads >= end) break;
                const combine::Packet packet(first + i * kThreads);
                float merged[8] = {};
#pragma unroll
                for (int k = 0; k < 2; ++k) add(unit, k, packet, parts[i][k], merged);
                store<Element>(record, packet, merged);
            }
        }
    }

    // The slice when many share it: `shares` threads a packet take every so many-th piece each, and one adds up their
    // sums.
    template <class Element>
    __device__ __forceinline__ void merge_many(const SharedUnit& unit, const PieceRecord& record, int begin, int end) {
        int shares = 1;
        while (shares < 8 && (end - begin) * shares * 2 <= kThreads) shares *= 2;
        const int packets = kThreads / shares;  // a pass
        const int share = thread / packets;
#pragma unroll 1
        for (int first = begin; first < end; first += packets) {
            const int index = first + thread % packets;
            const combine::Packet packet(index);
            float merged[8] = {};
            if (index < end) {
#pragma unroll 1
                for (int base = share; base < unit.count; base += kPiecesInFlight * shares) {
                    uint4 parts[kPiecesInFlight];
#pragma unroll
                    for (int u = 0; u < kPiecesInFlight; ++u) {
                        if (base + u * shares < unit.count) {
                            parts[u] = __ldcg(packet_of(unit, base + u * shares, index));
                        }
                    }
#pragma unroll
                    for (int u = 0; u < kPiecesInFlight; ++u) {
                        if (base + u * shares < unit.count) add(unit, base + u * shares, packet, parts[u], merged);
                    }
                }
            }
            if (shares > 1) {
#pragma unroll
                for (int i = 0; i < 8; ++i) scratch().share[thread][i] = merged[i];
                __syncthreads();
#pragma unroll 1
                for (int other = 1; share == 0 && other < shares; ++other) {
#pragma unroll
                    for (int i = 0; i < 8; ++i) merged[i] += scratch().share[thread + other * packets][i];
                }
            }
            if (share == 0 && index < end) store<Element>(record, packet, merged);
        }
    }

    template <class Element>
    __device__ __forceinline__ void run() {
        __syncthreads();  // the ring's last reader is done with it
#pragma unroll 1
        for (int side = 0; side < 2; ++side) {
            const SharedUnit unit = side == 0 ? shared.entered : shared.left;
            if (unit.count == 0) continue;
            for (int i = thread; i < 2 * unit.count; i += kThreads) {
                gpu::await_signal(signal_of(p, unit.first_worker + i / 2, tile_in_unit, i % 2));
            }
            __syncthreads();
            const float lse_log2 = find_weights(unit);
            const PieceRecord record = record_of(unit);
            if (worker == unit.first_worker && thread < kRowTile) store_lse(p, record, thread, lse_log2);
            const int own = worker - unit.first_worker;
            const int begin = combine::kPackets * own / unit.count;
            const int end = combine::kPackets * (own + 1) / unit.count;
            if (unit.count == 2) {
                merge_two<Element>(unit, record, begin, end);
            } else {
                merge_many<Element>(unit, record, begin, end);
            }
            __syncthreads();  // the scratch is free again
        }
    }
};

}  // namespace flashmla::backends::sm90::decode_dense
