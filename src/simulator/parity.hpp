// The parity computation of the simulator: one (request, head) both ways, in fp32.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cpu_isa.hpp"

namespace flashmla::simulator {

struct ParityProblem {
    std::int64_t heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t latent_dim = 0;
    std::int64_t rope_dim = 0;
    std::int64_t page_size = 0;
    std::int64_t context_len = 0;
    std::int64_t pages_per_request = 0;
    float scale = 0;
    const float* w_uk = nullptr;                // (heads, head_dim, latent_dim)
    const float* w_uv = nullptr;                // (heads, head_dim, latent_dim)
    const float* q = nullptr;                   // (batch, heads, head_dim + rope_dim)
    const float* cache = nullptr;               // (pages, page_size, latent_dim + rope_dim)
    const std::int32_t* block_table = nullptr;  // (batch, pages_per_request)

    std::int64_t row_dim() const { return latent_dim + rope_dim; }
    const float* cache_row(std::int64_t request, std::int64_t token) const {
        const std::int64_t page = block_table[request * pages_per_request + token / page_size];
        return cache + (page * page_size + token % page_size) * row_dim();
    }
};

// A thread's working memory, reused from item to item.
struct ParityScratch {
    std::vector<float> packed_uk, packed_uv;  // one head's weights in panels
    std::vector<float> k_tile, v_tile;        // expanded keys and values of a tile of tokens
    std::vector<float> q_latent, o_latent;
    std::vector<float> expanded, absorbed;  // the two outputs, head_dim each
};

// Computes scratch.expanded and scratch.absorbed for one (request, head).
using ParityItem = void (*)(const ParityProblem&, std::int64_t request, std::int64_t head, ParityScratch&);

// By vector width in bits: 128 runs everywhere, 256 needs AVX2 and FMA, 512 the AVX-512 set of core::CpuIsa::kAvx512.
void parity_item_vector128(const ParityProblem& problem, std::int64_t request, std::int64_t head,
                           ParityScratch& scratch);
#if defined(__x86_64__)
void parity_item_vector256(const ParityProblem& problem, std::int64_t request, std::int64_t head,
                           ParityScratch& scratch);
void parity_item_vector512(const ParityProblem& problem, std::int64_t request, std::int64_t head,
                           ParityScratch& scratch);
#endif

// The widest one that a path allows.
ParityItem parity_item(core::CpuIsa isa);

}  // namespace flashmla::simulator
