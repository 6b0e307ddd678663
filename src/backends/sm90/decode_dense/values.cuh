// Values warpgroups: O += P V for 256 columns each, and the epilogue. Side 0 owns columns 0-255, side 1 columns
// 256-511.
#pragma once

#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/arch/mma_sm90_gmma.hpp>

#include "backends/sm90/decode_dense/queue.cuh"
#include "backends/sm90/decode_dense/results.cuh"
#include "core/planted_fault.hpp"
#include "gpu/thread.cuh"

namespace flashmla::backends::sm90::decode_dense {

template <class Element, int kCluster, int side>
struct Values {
    using Atoms = gpu::WgmmaAtoms<Element>;

    const Params& p;
    Shared& shared;
    int tile_in_unit;
    int warp;  // in the warpgroup
    int lane;
    gpu::RingPosition<kRingSlots> ring{};
    gpu::RingPosition<kTileBarriers> key_tile{};
    std::uint32_t tile_count = 0;  // entries of the scores warpgroup taken: P of key tiles, and a piece's row sums

    float o[2][64];  // [pair of this side][accumulator of 64 x 128]

    __device__ __forceinline__ void sync_warpgroup() { gpu::sync_threads(128, 1 + side); }

    // This side's pair i of the key tile at the ring's position.
    __device__ __forceinline__ gpu::RingPosition<kRingSlots> pair(int i) const { return ring.ahead(2 * i + side); }

    __device__ __forceinline__ void release_pair(int i) {
        gpu::arrive_as_warp_everywhere<kCluster>(shared.barriers.slot_empty[pair(i).slot], lane);
    }

    __device__ __forceinline__ void rescale(int buffer) {
        if (core::planted(core::PlantedFault::kRescaleSkipped)) return;
        const auto at = gpu::place();
        const float low = shared.rescale[buffer][16 * at.warp + at.lane / 4];
        const float high = shared.rescale[buffer][16 * at.warp + at.lane / 4 + 8];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int k = 0; k < 64; ++k) o[i][k] *= k % 4 < 2 ? low : high;
        }
    }

    // Rows of V past the request's end may hold NaN, and 0 * NaN is NaN.
    __device__ __forceinline__ void clear_rows_from(int first_row) {
        const int thread = gpu::place().thread();
        const int chunk = thread % 8;
        for (int row = first_row + thread / 8; row < kKeyTile; row += 16) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                unsigned char* tile = shared.pairs[pair(i / 2).slot] + (i % 2) * gpu::kTileBytes;
                *reinterpret_cast<uint4*>(tile + gpu::tile_offset(row, chunk)) = uint4{0, 0, 0, 0};
            }
        }
        gpu::fence_for_async_readers();
        sync_warpgroup();
    }

    __device__ __forceinline__ void multiply(int buffer, bool accumulate, bool keep_pairs) {
        const gpu::Descriptor probabilities = gpu::k_major(shared.p[buffer]);
        // Both phases are over: the scores of this tile needed all of it. The waits make the copies visible here too.
        shared.barriers.head_full[key_tile.slot].wait(key_tile.phase);
        if (side == 1) shared.barriers.last_full[key_tile.slot].wait(key_tile.phase);
#pragma unroll
        for (int i = 0; i < 2; ++i) gpu::fence_registers(o[i]);
        cute::warpgroup_arrive();
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const gpu::Descriptor values = gpu::mn_major_pair(shared.pairs[pair(i).slot]);
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                gpu::wgmma_ss<typename Atoms::Ss128>(probabilities.at(step * gpu::kKMajorStep),
                                                     values.at(step * gpu::kMnMajorStep), o[i], accumulate || step > 0);
            }
            cute::warpgroup_commit_batch();
        }
        gpu::jitter(140 + 4 * side + warp);
        cute::warpgroup_wait<1>();
        if (!keep_pairs) release_pair(0);
        cute::warpgroup_wait<0>();
#pragma unroll
        for (int i = 0; i < 2; ++i) gpu::fence_registers(o[i]);
        if (!keep_pairs) release_pair(1);
    }

    __device__ __forceinline__ void normalise(const float (&factor)[2]) {
        // A row without keys is 0, whatever V holds.
        if (__any_sync(~0u, factor[0] == 0.0f || factor[1] == 0.0f)) clear_empty_rows(factor);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int k = 0; k < 64; ++k) {
                o[i][k] *= factor[k % 4 < 2 ? 0 : 1];
            }
        }
    }

    static __device__ __forceinline__ int written_row(const gpu::WarpgroupPlace& at) {
        return 16 * at.warp + at.lane / 4 + 8 * (at.lane % 2);
    }

    // Log-sum-exp of the lane's row, to the caller's tensor or to the piece's slot.
    __device__ __forceinline__ void write_lse(const PieceRecord& piece, float lse_log2) {
        const auto at = gpu::place();
        if (at.lane % 4 > 1) return;
        if (piece.slot < 0) {
            store_lse(p, piece, written_row(at), lse_log2);
            return;
        }
        const long long tile = static_cast<long long>(piece.slot) * p.work.row_tiles_per_unit + tile_in_unit;
        p.partial_rows[tile * kRowTile + written_row(at)].lse_log2 = lse_log2;
    }

    __device__ __forceinline__ void clear_empty_rows(const float (&factor)[2]) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int k = 0; k < 64; ++k) {
                if (factor[k % 4 < 2 ? 0 : 1] == 0.0f) o[i][k] = 0.0f;
            }
        }
    }

    // A partial result is kept in fp16 with a power of two for each row of this side, so that no value of V overflows
    // or loses digits: half the traffic of fp32 for an error of 2^-11 of the row's largest value. This finds the powers
    // and puts them into the factors.
    __device__ __forceinline__ void find_exponents(long long tile, float (&factor)[2]) {
        const auto at = gpu::place();
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            float largest = 0.0f;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
#pragma unroll
                for (int k = 0; k < 32; ++k) largest = fmaxf(largest, fabsf(o[i][k / 2 * 4 + 2 * row + k % 2]));
            }
            largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
            // Scaled values lie in [2^14, 2^15): the exponent field of `largest`, held where both powers are normal
            // numbers.
            const int exponent =
                core::min_of(core::max_of(__float_as_int(largest * factor[row]) >> 23, 20), 240) - 127 - 14;
            factor[row] *= __int_as_float((127 - exponent) << 23);
            if (at.lane % 4 == 0) {
                p.partial_rows[tile * kRowTile + 16 * at.warp + at.lane / 4 + 8 * row].exponent[side] =
                    static_cast<float>(exponent);
            }
        }
    }

    // Partial result in accumulator order (combine/partials.hpp): 16-byte stores, coalesced.
    __device__ __forceinline__ void store_partial(long long tile) {
        const auto at = gpu::place();
        uint4* out = static_cast<uint4*>(p.partial_out) + tile * combine::kPackets + at.warp * combine::kGroupPackets +
                     2 * side * (combine::kSteps * 32) + at.lane;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int k = 0; k < 8; ++k) {
                const float* v = &o[i][8 * k];
                out[(i * combine::kSteps + k) * 32] =
                    uint4{gpu::pack<cutlass::half_t>(v[0], v[1]), gpu::pack<cutlass::half_t>(v[2], v[3]),
                          gpu::pack<cutlass::half_t>(v[4], v[5]), gpu::pack<cutlass::half_t>(v[6], v[7])};
            }
        }
    }

    // Final result: staged in this side's last two pairs, which nobody reads any more, then four tiles by bulk copy.
    __device__ __forceinline__ void store_out(const PieceRecord& piece) {
        sync_warpgroup();  // every warp's WGMMA has read its V
        const auto at = gpu::place();
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int k = 0; k < 8; ++k) {  // 16 columns each
                const float* v = &o[i][8 * k];
                unsigned char* tile = shared.pairs[pair(i).slot] + (k / 4) * gpu::kTileBytes;
                gpu::store_fragment(tile + gpu::fragment_offset(at.warp, at.lane, k % 4),
                                    gpu::pack<Element>(v[0], v[1]), gpu::pack<Element>(v[2], v[3]),
                                    gpu::pack<Element>(v[4], v[5]), gpu::pack<Element>(v[6], v[7]));
            }
        }
        gpu::fence_for_async_readers();
        sync_warpgroup();
        if (at.thread() == 0) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                cute::SM90_TMA_STORE_5D::copy(&p.out, shared.pairs[pair(i / 2).slot] + (i % 2) * gpu::kTileBytes,
                                              256 * side + 64 * i, piece.first_head, piece.first_token, piece.kv_head,
                                              piece.request);
            }
            cute::tma_store_arrive();
            cute::tma_store_wait<0>();
        }
        sync_warpgroup();
        release_pair(0);
        release_pair(1);
    }

    // A unit that sees no key takes no place in the ring: plain stores.
    __device__ __forceinline__ void store_zeros(const PieceRecord& piece) {
        const core::RowTiling& rows = p.work.rows;
        const int heads_here = core::min_of(rows.tile_heads, rows.heads - piece.first_head);
        const int tokens_here = core::min_of(rows.tokens_per_tile, rows.s_q - piece.first_token);
        // 16 bytes of this side's 512 a row at a time
        for (int i = gpu::place().thread(); i < heads_here * tokens_here * 32; i += 128) {
            const int r = i / 32;
            const long long offset = piece.request * p.out_b + (piece.first_token + r / heads_here) * p.out_token +
                                     (piece.kv_head * rows.heads + piece.first_head + r % heads_here) * p.out_head;
            reinterpret_cast<uint4*>(static_cast<unsigned short*>(p.out_base) + offset + 256 * side)[i % 32] =
                uint4{0, 0, 0, 0};
        }
    }

    __device__ __forceinline__ void free_p(int buffer) { gpu::arrive_as_warp(shared.barriers.p_free[buffer], lane); }

    __device__ __forceinline__ void run() {
        for (PieceReader reader(shared); reader.next();) {
            const PieceRecord& piece = reader.piece();
            const int tile_begin = gpu::uniform(piece.tile_begin);
            const int tile_end = gpu::uniform(piece.tile_end);
            if (tile_begin == tile_end) {
                store_zeros(piece);
                if (side == 0) write_lse(piece, -kInfinity);
                continue;
            }
            const int len = gpu::uniform(piece.len);
            ring.advance(kQueryPairs);
            for (int tile = tile_begin; tile < tile_end; ++tile) {
                const int buffer = tile_count & 1;
                const bool last = tile + 1 == tile_end;
                gpu::jitter(130 + 4 * side + warp);
                shared.barriers.p_ready[buffer].wait((tile_count >> 1) & 1);
                if (tile > tile_begin && shared.rescale_flag[buffer][warp]) rescale(buffer);
                if ((tile + 1) * kKeyTile > len && !core::planted(core::PlantedFault::kTailNotMasked)) {
                    clear_rows_from(len - tile * kKeyTile);
                }
                multiply(buffer, tile > tile_begin, last);
                key_tile.advance(1);
                free_p(buffer);
                ++tile_count;
                if (last) break;
                ring.advance(kPairs);
            }
            const int buffer = tile_count & 1;
            shared.barriers.p_ready[buffer].wait((tile_count >> 1) & 1);
            const auto at = gpu::place();
            float factor[2] = {shared.inverse_sum[buffer][16 * at.warp + at.lane / 4],
                               shared.inverse_sum[buffer][16 * at.warp + at.lane / 4 + 8]};
            const float lse_log2 = shared.row_lse[buffer][written_row(at)];
            free_p(buffer);
            ++tile_count;
            if (side == 0) write_lse(piece, lse_log2);
            const int slot = gpu::uniform(piece.slot);
            const long long partial = static_cast<long long>(slot) * p.work.row_tiles_per_unit + tile_in_unit;
            const bool has_rows = 16 * warp < p.box_rows;  // otherwise the warp holds nothing but garbage rows
            gpu::jitter<3>(150 + 4 * side + warp);
            if (slot >= 0) {
                release_pair(0);
                release_pair(1);
                if (has_rows) find_exponents(partial, factor);
            }
            if (has_rows) normalise(factor);
            if (slot < 0) {
                store_out(piece);
            } else if (has_rows) {
                store_partial(partial);
            }
            ring.advance(kPairs);
        }
    }
};

}  // namespace flashmla::backends::sm90::decode_dense
