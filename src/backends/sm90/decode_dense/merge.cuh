// Merge of split units inside the kernel: every worker that has a piece of a unit merges an equal slice of its columns
// and rows, after all pieces are written. The launch is cooperative, so waiting for other CTAs is safe; workers end
// their ranges at about the same time, so it is short. Saves the launch and the cold start of a merge kernel.
//
// Every launch finds this code cold, and fetching it costs about as much as a merge can take: so loops stay rolled, and
// partial results come into shared memory by asynchronous copies instead of through unrolled registers.
#pragma once

#include <cuda_fp16.h>

#include <cute/arch/copy_sm80.hpp>

#include "backends/sm90/decode_dense/params.hpp"
#include "backends/sm90/decode_dense/results.cuh"
#include "backends/sm90/decode_dense/shared.cuh"
#include "combine/partials.hpp"
#include "core/planted_fault.hpp"

namespace flashmla::backends::sm90::decode_dense {

// Scratch of the merge, in the ring's memory, which nobody uses any more. More than four pieces make slices that touch
// two groups of rows at most.
struct MergeScratch {
    // [piece][row that the slice touches, and one to spread pieces over the banks]; exponents become weights
    combine::PartialRow rows[kMaxWorkers * (2 * combine::kGroupRows + 1)];
    // [piece][packet of the slice, and one to spread pieces over the banks]
    uint4 slices[combine::kPackets + 2 * kMaxWorkers];
};
static_assert(sizeof(MergeScratch) <= sizeof(Shared::pairs));

struct SliceMerge {
    const Params& p;
    Shared& shared;
    int worker;
    int tile_in_unit;
    int thread;

    int sides = 0;  // of shared.entered and shared.left, looked at so far
    SharedUnit unit{};
    int begin = 0, size = 0;          // the worker's slice: packets of the row tile
    int first_group = 0, groups = 0;  // groups of rows it touches

    __device__ __forceinline__ MergeScratch& scratch() { return *reinterpret_cast<MergeScratch*>(shared.pairs[0]); }
    __device__ __forceinline__ combine::PartialRow& row_of(int piece, int row) {
        return scratch().rows[piece * (groups * combine::kGroupRows + 1) + row];
    }

    __device__ __forceinline__ long long tile_of(int piece) const {
        if (core::planted(core::PlantedFault::kSplitMergedTwice) && piece > 0) --piece;
        const auto slot =
            piece == 0 ? plan::left_slot(unit.first_worker) : plan::entered_slot(unit.first_worker + piece);
        return static_cast<long long>(slot) * p.work.row_tiles_per_unit + tile_in_unit;
    }

    __device__ __forceinline__ void find_slice() {
        const int packets = core::ceil_div(p.box_rows, combine::kGroupRows) * combine::kGroupPackets;
        const int own = worker - unit.first_worker;
        begin = packets * own / unit.count;
        size = packets * (own + 1) / unit.count - begin;
        first_group = begin / combine::kGroupPackets;
        groups = (begin + size - 1) / combine::kGroupPackets - first_group + 1;
    }

    // Threads that share a packet's pieces: as many as there is no packet for, a power of two, lanes of one warp.
    __device__ __forceinline__ int packet_shares() const {
        int shares = 1;
        while (shares < 32 && size * shares * 2 <= kThreads) shares *= 2;
        return shares;
    }

    // Starts the copies of the row records of every piece: 16 threads a group.
    __device__ __forceinline__ void copy_rows() {
        const int row = thread % combine::kGroupRows;
#pragma unroll 1
        for (int group = 0; group < groups; ++group) {
#pragma unroll 1
            for (int piece = thread / combine::kGroupRows; piece < unit.count;
                 piece += kThreads / combine::kGroupRows) {
                const int offset = group * combine::kGroupRows + row;
                const combine::PartialRow* from =
                    p.partial_rows + tile_of(piece) * kRowTile + first_group * combine::kGroupRows + offset;
                cute::SM80_CP_ASYNC_CACHEGLOBAL<combine::PartialRow>::copy(*from, row_of(piece, offset));
            }
        }
        cute::cp_async_fence();
    }

    // And of the slice of every piece.
    __device__ __forceinline__ void copy_slices(int shares) {
        const int span = kThreads / shares;
        const int first = thread % span;
#pragma unroll 1
        for (int piece = thread / span; piece < unit.count; piece += shares) {
            const uint4* from = static_cast<const uint4*>(p.partial_out) + tile_of(piece) * combine::kPackets + begin;
            uint4* to = scratch().slices + piece * (size + 1);
#pragma unroll 2
            for (int i = first; i < size; i += span) {
                cute::SM80_CP_ASYNC_CACHEGLOBAL<uint4>::copy(from[i], to[i]);
            }
        }
        cute::cp_async_fence();
    }

    // Weights of every piece for every row that the slice touches: 8, 16 or 32 neighbouring threads a row. The worker
    // whose slice has a group's first packet writes the group's log-sum-exps.
    __device__ __forceinline__ void find_weights(const PieceRecord& record) {
        const int parts = groups == 1 ? 32 : groups == 2 ? 16 : 8;
        const int row = thread / parts;
        const int part = thread % parts;
        if (row >= groups * combine::kGroupRows) return;  // whole warps
        const int row_of_tile = first_group * combine::kGroupRows + row;
        float top = -kInfinity;
#pragma unroll 1
        for (int k = part; k < unit.count; k += parts) top = fmaxf(top, row_of(k, row).lse_log2);
#pragma unroll 1
        for (int step = 1; step < parts; step *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
        float sum = 0.0f;
#pragma unroll 1
        for (int k = part; k < unit.count; k += parts) {
            const float lse = row_of(k, row).lse_log2;
            sum += lse == -kInfinity ? 0.0f : exp2f(lse - top);
        }
#pragma unroll 1
        for (int step = 1; step < parts; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
        const float lse_log2 = sum == 0.0f ? -kInfinity : top + log2f(sum);
#pragma unroll 1
        for (int k = part; k < unit.count; k += parts) {
            combine::PartialRow& piece = row_of(k, row);
            const float weight = piece.lse_log2 == -kInfinity ? 0.0f : exp2f(piece.lse_log2 - lse_log2);
            piece.exponent[0] = weight * exp2f(piece.exponent[0]);
            piece.exponent[1] = weight * exp2f(piece.exponent[1]);
        }
        const int group_begin = row_of_tile / combine::kGroupRows * combine::kGroupPackets;
        if (part == 0 && group_begin >= begin) store_lse(p, record, row_of_tile, lse_log2);
    }

    __device__ __forceinline__ PieceRecord record_of() const {
        const int row_tile = p.work.first_row_tile(unit.unit) + tile_in_unit;
        return {unit.request, p.work.kv_head(unit.unit), p.work.rows.first_token(row_tile),
                p.work.rows.first_head(row_tile)};
    }

    __device__ __forceinline__ void add(int piece, const combine::Packet& packet, const uint4& part,
                                        float (&merged)[8]) {
        const int row = packet.row(0) - first_group * combine::kGroupRows;
        const float w[2] = {row_of(piece, row).exponent[packet.half()], row_of(piece, row + 8).exponent[packet.half()]};
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
            const int token = record.first_token + rows.token_of(r);
            const int head = record.first_head + rows.head_of(r);
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

    template <class Element>
    __device__ __forceinline__ void merge_slice(const PieceRecord& record, int shares) {
        const int share = thread % shares;
#pragma unroll 1
        for (int i = thread / shares; i - thread / shares < size; i += kThreads / shares) {
            const combine::Packet packet(begin + i);
            float merged[8] = {};
            if (i < size) {
#pragma unroll 4
                for (int k = share; k < unit.count; k += shares) {
                    add(k, packet, scratch().slices[k * (size + 1) + i], merged);
                }
            }
#pragma unroll 1
            for (int other = 1; other < shares; other *= 2) {
#pragma unroll
                for (int v = 0; v < 8; ++v) merged[v] += __shfl_xor_sync(~0u, merged[v], other);
            }
            if (share == 0 && i < size) store<Element>(record, packet, merged);
        }
    }

    // The next unit that the worker shares; false when there is none.
    __device__ __forceinline__ bool next_unit() {
        unit.count = 0;
        while (unit.count == 0 && sides < 2) unit = sides++ == 0 ? shared.entered : shared.left;
        if (unit.count == 0) return false;
        find_slice();
        return true;
    }

    template <class Element>
    __device__ __forceinline__ void run() {
        copy_rows();
        const int shares = packet_shares();
        copy_slices(shares);
        const PieceRecord record = record_of();
        cute::cp_async_wait<1>();
        __syncthreads();
        find_weights(record);
        cute::cp_async_wait<0>();
        __syncthreads();
        merge_slice<Element>(record, shares);
        __syncthreads();  // the scratch is free again
    }
};

}  // namespace flashmla::backends::sm90::decode_dense
