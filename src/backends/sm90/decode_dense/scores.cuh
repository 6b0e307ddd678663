// Scores warpgroup: S = Q K^T, online softmax, P to shared memory.
//
// Thread layout (WGMMA accumulator): a thread owns rows 16 * warp + lane / 4 and that + 8, and of each the columns
// 8 * i + 2 * (lane % 4) + {0, 1}; element [4 * i + 2 * (upper row) + column % 2].
#pragma once

#include <cute/arch/mma_sm90_gmma.hpp>

#include "backends/sm90/decode_dense/queue.cuh"
#include "backends/sm90/decode_dense/results.cuh"
#include "core/planted_fault.hpp"
#include "gpu/thread.cuh"

namespace flashmla::backends::sm90::decode_dense {

// Below every score, and finite: against it a visible score's exponential is infinite, which has the maximum raised,
// and a hidden one's is 0.
inline constexpr float kNoMaximum = -0x1p120f;

template <class Element, int kCluster, bool kHoldValues>
struct Scores {
    using Atoms = gpu::WgmmaAtoms<Element>;

    const Params& p;
    Shared& shared;
    int warp;  // in the warpgroup
    int lane;
    gpu::RingPosition<kRingSlots> ring{};
    gpu::RingPosition<kTileBarriers> key_tile{};
    std::uint32_t q_count = 0;  // queries taken: parity picks their barriers
    std::uint32_t tile_count =
        0;  // entries handed to the values warpgroups: key tiles, and row sums after a piece's last

    std::uint32_t q[2 * kQueryPairs][16];  // register operand: 6 query tiles in ring order, 4 steps of 4 words
    float s[32];
    float max_log2[2];  // running maximum of scale_log2 * s; kNoMaximum before the first visible key
    float sum[2];       // of this thread's columns only
    int visible[2];     // keys the thread's rows see

    __device__ __forceinline__ void release(gpu::Barrier& barrier) {
        gpu::arrive_as_warp_everywhere<kCluster>(barrier, lane);
    }

    // Into registers. Only issues the loads: the slots must not be given back before they are done, and an arrival at
    // another CTA's barrier does not wait for them.
    __device__ __forceinline__ void load_query() {
        const auto at = gpu::place();
        shared.barriers.q_pairs_full[q_count & 1].wait((q_count >> 1) & 1);
#pragma unroll
        for (int pair = 0; pair < kQueryPairs; ++pair) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const unsigned char* tile = shared.pairs[ring.ahead(pair).slot] + half * gpu::kTileBytes;
#pragma unroll
                for (int step = 0; step < 4; ++step) {
                    std::uint32_t words[4];
                    gpu::load_fragment(tile + gpu::fragment_offset(at.warp, at.lane, step), words);
#pragma unroll
                    for (int i = 0; i < 4; ++i) q[2 * pair + half][4 * step + i] = words[i];
                }
            }
        }
        ring.advance(kQueryPairs);
    }

    // The query's slots, just behind the first key tile's. To be called when WGMMA that read the registers are issued:
    // then the loads are done.
    __device__ __forceinline__ void release_query_pairs() {
#pragma unroll
        for (int pair = 0; pair < kQueryPairs; ++pair) {
            release(shared.barriers.slot_empty[ring.ahead(kRingSlots - kQueryPairs + pair).slot]);
        }
    }

    // S of the key tile at the ring's position, in two commit groups: the six register tiles, then rope and the last
    // pair, whose slot is the last to be refilled.
    __device__ __forceinline__ void issue_scores(bool first) {
        shared.barriers.head_full[key_tile.slot].wait(key_tile.phase);
        gpu::fence_registers(s);
        cute::warpgroup_arrive();
#pragma unroll
        for (int tile = 0; tile < 2 * kQueryPairs; ++tile) {
            const gpu::Descriptor keys =
                gpu::k_major(shared.pairs[ring.ahead(tile / 2).slot] + (tile % 2) * gpu::kTileBytes);
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                gpu::wgmma_rs<typename Atoms::Rs64>(&q[tile][4 * step], keys.at(step * gpu::kKMajorStep), s,
                                                    tile + step > 0);
            }
        }
        cute::warpgroup_commit_batch();
        if (first) {
            release_query_pairs();
            shared.barriers.q_tail_full.wait(q_count & 1);
            ++q_count;
        }
        const auto last = ring.ahead(3);
        shared.barriers.last_full[key_tile.slot].wait(key_tile.phase);
        cute::warpgroup_arrive();  // after a branch ptxas wants it said again, or serialises (C7520)
#pragma unroll
        for (int tile = kQueryTailTiles - 1; tile >= 0; --tile) {
            const gpu::Descriptor query = gpu::k_major(shared.q_tail[tile]);
            const gpu::Descriptor keys =
                gpu::k_major(tile < 2 ? shared.pairs[last.slot] + tile * gpu::kTileBytes : shared.rope);
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                gpu::wgmma_ss<typename Atoms::Ss64>(query.at(step * gpu::kKMajorStep), keys.at(step * gpu::kKMajorStep),
                                                    s, true);
            }
        }
        cute::warpgroup_commit_batch();
        ring.advance(kPairs);
        key_tile.advance(1);
        // For the softmax to come; asked here, where the warpgroup has nothing else to do.
        wait_for_free(tile_count);
    }

    // Until the values warpgroups have read entry `count` - 2.
    __device__ __forceinline__ void wait_for_free(std::uint32_t count) {
        shared.barriers.p_free[count & 1].wait(((count >> 1) & 1) ^ 1);
    }

    __device__ __forceinline__ void finish_scores() {
        cute::warpgroup_wait<0>();
        gpu::fence_registers(s);
        release(shared.barriers.rope_empty);
    }

    // Scores of keys that a row does not see: -inf once scaled, whatever they were.
    __device__ __forceinline__ void mask(int tile) {
        const float hidden = p.scale_log2 < 0.0f ? kInfinity : -kInfinity;
        // Keys of this tile that the thread's rows still see, counted from its first column.
        const int limits[2] = {visible[0] - tile * kKeyTile - 2 * (lane % 4),
                               visible[1] - tile * kKeyTile - 2 * (lane % 4)};
#pragma unroll
        for (int i = 0; i < 16; ++i) {
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                if (8 * (i / 2) + k >= limits[i % 2]) s[2 * i + k] = hidden;
            }
        }
    }

    // exp2 of the scores against the running maximum, rounded and stored as P's tile. `terms` receives the thread's
    // sums of its two rows. Stored 16 columns at a time: holding all of P beside S and Q would not fit the registers.
    __device__ __forceinline__ void exponentials(unsigned char* p_tile, float (&terms)[2]) {
        terms[0] = terms[1] = 0.0f;
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            std::uint32_t words[4];  // pairs of neighbouring columns; odd words belong to the upper row
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float e[2];
#pragma unroll
                for (int k = 0; k < 2; ++k) {
                    e[k] = exp2f_approx(fmaf(s[8 * step + 2 * i + k], p.scale_log2, -max_log2[i % 2]));
                }
                terms[i % 2] += e[0] + e[1];
                words[i] = gpu::pack<Element>(e[0], e[1]);
            }
            gpu::store_fragment(p_tile + gpu::fragment_offset(warp, lane, step), words[0], words[1], words[2],
                                words[3]);
        }
    }

    static __device__ __forceinline__ float exp2f_approx(float x) {
        float y;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
        return y;
    }

    // Raises the running maximum to cover this tile, rescales the sums, and tells the value warpgroups by how much.
    __device__ __forceinline__ void raise_maximum(int buffer) {
        float tile_max[2] = {-kInfinity, -kInfinity};
        const auto at = gpu::place();
#pragma unroll
        for (int i = 0; i < 32; ++i) tile_max[i / 2 % 2] = fmaxf(tile_max[i / 2 % 2], s[i] * p.scale_log2);
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            tile_max[row] = fmaxf(tile_max[row], __shfl_xor_sync(~0u, tile_max[row], 1));
            tile_max[row] = fmaxf(tile_max[row], __shfl_xor_sync(~0u, tile_max[row], 2));
            const float raised = fmaxf(max_log2[row], tile_max[row]);
            const float factor = exp2f_approx(max_log2[row] - raised);
            max_log2[row] = raised;
            sum[row] *= factor;
            if (at.lane % 4 == 0) shared.rescale[buffer][16 * at.warp + at.lane / 4 + 8 * row] = factor;
        }
    }

    // P of the tile against the running maximum; a maximum that is too low is raised first, and for the first tile of a
    // piece there is none yet. One copy of the code for all cases, since every launch finds it cold.
    __device__ __forceinline__ void softmax(int buffer, bool first) {
        float terms[2];
        bool raise = first;
#pragma unroll 1
        while (true) {
            if (raise) raise_maximum(buffer);
            exponentials(shared.p[buffer], terms);
            if (raise || !__any_sync(~0u, !(terms[0] <= kLazySumLimit && terms[1] <= kLazySumLimit))) break;  // or NaN
            raise = true;
        }
        if (lane == 0) shared.rescale_flag[buffer][warp] = raise;
        sum[0] += terms[0];
        sum[1] += terms[1];
    }

    // What softmax left for the value warpgroups, fenced for their WGMMA.
    __device__ __forceinline__ void publish(int buffer) { gpu::arrive_as_warp(shared.barriers.p_ready[buffer], lane); }

    // Whole-row sums: inverse and log-sum-exp for the value warpgroups, which write the results.
    __device__ __forceinline__ void finish_sums(int buffer) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            float l = sum[row];
            l += __shfl_xor_sync(~0u, l, 1);
            l += __shfl_xor_sync(~0u, l, 2);
            if (lane % 4 == 0) {
                const int r = 16 * warp + lane / 4 + 8 * row;
                shared.inverse_sum[buffer][r] = l == 0.0f ? 0.0f : 1.0f / l;
                shared.row_lse[buffer][r] = l == 0.0f ? -kInfinity : max_log2[row] + log2f(l);
            }
        }
    }

    // Keys visible to the thread's rows; returns the first key tile in which any row of the tile needs a mask.
    __device__ __forceinline__ int set_visible(const PieceRecord& piece) {
        const core::RowTiling& rows = p.work.rows;
        const auto at = gpu::place();
        constexpr int kOffByOne = core::planted(core::PlantedFault::kMaskOffByOne) ? 1 : 0;
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const int r = 16 * at.warp + at.lane / 4 + 8 * row;
            const int token = core::min_of(piece.first_token + rows.token_of(r), rows.s_q - 1);
            visible[row] =
                core::min_of(piece.len, core::visible_keys(piece.len, rows.s_q, token, p.work.causal) + kOffByOne);
            if (r >= p.box_rows) visible[row] = 0;  // garbage rows: keep their NaN out of the votes
        }
        if (p.box_rows < kRowTile) return 0;
        if (core::planted(core::PlantedFault::kTailNotMasked) && !p.work.causal) return 1 << 30;
        const int first_token = core::min_of(piece.first_token, rows.s_q - 1);
        return core::visible_keys(piece.len, rows.s_q, first_token, p.work.causal) / kKeyTile;
    }

    __device__ __forceinline__ void run() {
        for (PieceReader reader(shared); reader.next();) {
            const PieceRecord& piece = reader.piece();
            const int tile_begin = gpu::uniform(piece.tile_begin);
            const int tile_end = gpu::uniform(piece.tile_end);
            if (tile_begin == tile_end) continue;
            const int first_masked = gpu::uniform(set_visible(piece));
            load_query();
            max_log2[0] = max_log2[1] = kNoMaximum;
            sum[0] = sum[1] = 0.0f;
            for (int tile = tile_begin; tile < tile_end; ++tile) {
                gpu::jitter(100 + warp);
                issue_scores(tile == tile_begin);
                if (kHoldValues && tile > tile_begin) {
                    // Values of the tile before may start once these scores are nearly done: the tensor cores serve
                    // both in turn, and the scores are on the critical path.
                    cute::warpgroup_wait<1>();
                    publish((tile_count - 1) & 1);
                }
                finish_scores();
                // The producer may replace the query's tail.
                if (tile + 1 == tile_end) gpu::arrive_as_warp(shared.barriers.q_tail_empty, lane);
                if (tile >= first_masked) mask(tile);
                softmax(tile_count & 1, tile == tile_begin);
                gpu::jitter(110 + warp);
                gpu::fence_for_async_readers();
                if (!kHoldValues && tile + 1 < tile_end) publish(tile_count & 1);
                ++tile_count;
            }
            gpu::jitter<3>(120 + warp);
            publish((tile_count - 1) & 1);
            // The row sums follow as an entry of their own, so that the last P need not wait for them.
            wait_for_free(tile_count);
            finish_sums(tile_count & 1);
            publish(tile_count & 1);
            ++tile_count;
        }
    }
};

}  // namespace flashmla::backends::sm90::decode_dense
