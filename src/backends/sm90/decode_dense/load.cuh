// Producer warp: streams query tiles and KV pages into the ring by bulk tensor copies.
#pragma once

#include "backends/sm90/decode_dense/query.cuh"
#include "backends/sm90/decode_dense/queue.cuh"

namespace flashmla::backends::sm90::decode_dense {

__device__ __forceinline__ void prefetch_maps(const Params& p) {
    cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&p.q));
    cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&p.kv));
}

template <int kCluster, bool kPrefetch>
struct Producer {
    const Params& p;
    Shared& shared;
    int rank;  // of this CTA in its cluster
    int lane;
    gpu::RingPosition<kRingSlots> ring{};
    gpu::RingPosition<kTileBarriers> key_tile{};
    std::uint32_t rope_parity = 0;
    std::uint32_t q_count = 0;  // queries whose tail was passed; the first one's copies are the schedule warp's

    // 64 tokens x 64 columns of a page, into the same place of every CTA of the cluster.
    __device__ __forceinline__ void load_kv_tile(int column, int kv_head, int page, gpu::Barrier& full, void* tile) {
        if constexpr (kCluster == 1) {
            cute::SM90_TMA_LOAD_4D::copy(&p.kv, &full.word, kCacheHint, tile, column, 0, kv_head, page);
        } else {
            cute::SM90_TMA_LOAD_MULTICAST_4D::copy(&p.kv, &full.word, (1 << kCluster) - 1, kCacheHint, tile, column, 0,
                                                   kv_head, page);
        }
    }

    __device__ __forceinline__ void load_query_pairs(const PieceRecord& piece) {
        gpu::Barrier& full = shared.barriers.q_pairs_full[q_count & 1];
#pragma unroll 1
        for (int pair = 0; pair < kQueryPairs; ++pair) {
            if (q_count > 0) {
                shared.barriers.slot_empty[ring.slot].wait(ring.phase ^ 1);
                if (lane == 0) copy_query_pair(p, piece, pair, full, shared.pairs[ring.slot]);
            }
            ring.advance(1);
        }
    }

    __device__ __forceinline__ void load_query_tail(const PieceRecord& piece) {
        if (q_count > 0) {
            shared.barriers.q_tail_empty.wait((q_count & 1) ^ 1);
            if (lane == 0) copy_query_tail(p, piece, shared);
        }
        ++q_count;
    }

    __device__ __forceinline__ void load_pair(int pair, int kv_head, int page) {
        gpu::jitter(81);
        shared.barriers.slot_empty[ring.slot].wait(ring.phase ^ 1);
        if (lane == 0) {
            gpu::Barrier& full =
                pair < kHeadPairs ? shared.barriers.head_full[key_tile.slot] : shared.barriers.last_full[key_tile.slot];
            if (pair == 0) full.arrive_expecting(2 * kHeadPairs * gpu::kTileBytes);
            if (pair == kHeadPairs) full.arrive_expecting(3 * gpu::kTileBytes);
            // Each CTA of a cluster issues its share of the pair for all of them.
            for (int half = rank; half < 2; half += kCluster) {
                load_kv_tile(pair_column(pair) + 64 * half, kv_head, page, full,
                             shared.pairs[ring.slot] + half * gpu::kTileBytes);
            }
        }
        ring.advance(1);
    }

    // After the last pair, whose barrier it shares. The CTAs of a pair take turns, and only the one whose turn it is
    // may wait for the tile to be free: the scores of both go on without the other, two phases if it is late, and a
    // phase's parity would then look like that of the phase before.
    __device__ __forceinline__ void load_rope(int kv_head, int page) {
        gpu::jitter(82);
        if (kCluster == 1 || static_cast<int>(rope_parity) == rank) {
            shared.barriers.rope_empty.wait(rope_parity ^ 1);
            if (lane == 0) {
                load_kv_tile(kRopeColumn, kv_head, page, shared.barriers.last_full[key_tile.slot], shared.rope);
            }
        }
        rope_parity ^= 1;
    }

    // This CTA's share of a page, into L2, one key tile ahead of its copy. Issuing it takes hundreds of cycles: it
    // stands where the producer would wait for a slot anyway.
    __device__ __forceinline__ void prefetch(int page) {
        if (!kPrefetch || p.kv_base == nullptr || lane != 0) return;
        if (page < 0 || page >= p.num_pages) return;
        constexpr int kShareBytes = kKeyTile * kDimQk * 2 / kCluster;
        const char* address = p.kv_base + page * p.page_stride_bytes + rank * kShareBytes;
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(kShareBytes) : "memory");
    }

    __device__ __forceinline__ void run() {
        for (PieceReader reader(shared); reader.next();) {
            const PieceRecord& piece = reader.piece();
            const int tile_begin = gpu::uniform(piece.tile_begin);
            const int tile_end = gpu::uniform(piece.tile_end);
            const int kv_head = piece.kv_head;
            if (tile_begin == tile_end) continue;
            const std::int32_t* table = p.block_table + piece.request * p.table_stride;
            int pages = tile_begin + lane < tile_end ? table[tile_begin + lane] : 0;  // of 32 key tiles, one a lane
            load_query_pairs(piece);                                                  // while the table is on its way
            for (int tile = tile_begin, index = 0; tile < tile_end; ++tile, index = (index + 1) % 32) {
                if (index == 0 && tile > tile_begin) pages = tile + lane < tile_end ? table[tile + lane] : 0;
                const int page = __shfl_sync(~0u, pages, index);
                load_pair(0, kv_head, page);
                load_pair(1, kv_head, page);
                load_pair(2, kv_head, page);
                // Late, so that the first pages of a piece are on their way before the last scores of the one before
                // are done.
                if (tile == tile_begin) load_query_tail(piece);
                if (index < 31 && tile + 1 < tile_end) prefetch(__shfl_sync(~0u, pages, index + 1));
                load_pair(3, kv_head, page);
                load_rope(kv_head, page);
                key_tile.advance(1);
            }
        }
        if constexpr (kCluster > 1) await_last_arrivals();
    }

    // The other CTA arrives on this one's barriers, which must not end before: an arrival still on its way would count
    // on a barrier that the next launch has at the same place.
    __device__ __forceinline__ void await_last_arrivals() {
#pragma unroll 1
        for (int slot = 0; slot < kRingSlots; ++slot) {
            shared.barriers.slot_empty[ring.slot].wait(ring.phase ^ 1);
            ring.advance(1);
        }
        shared.barriers.rope_empty.wait(rope_parity ^ 1);
    }
};

}  // namespace flashmla::backends::sm90::decode_dense
