// One attention call over latents as the engine sees it; decode and sparse prefill both become one.
#pragma once

#include <cstdint>

#include "core/planted_fault.hpp"
#include "core/problem.hpp"
#include "core/row_tiling.hpp"
#include "flashmla/plan.hpp"
#include "flashmla/prefill.hpp"

namespace flashmla::backends::cpu {

// A paged cache as bytes.
struct KeyPool {
    const std::uint8_t* data = nullptr;
    std::int64_t num_pages = 0;
    std::int64_t page_size = 1;
    std::int64_t page_bytes = 0, token_bytes = 0, head_bytes = 0;  // strides

    std::int64_t tokens() const { return num_pages * page_size; }
};

struct LatentCall {
    DecodeShape shape;  // sparse prefill: one request
    int num_workers = 1;
    core::DecodeStrides strides;  // of q, out, lse and the table
    float softmax_scale = 0;
    KeyPool cache, extra;
    const void* q = nullptr;
    const std::int32_t* block_table = nullptr;  // dense
    const std::int32_t* lengths = nullptr;
    bool lengths_are_cumulative = false;
    core::IndexLists indices, extra_indices;  // sparse
    const float* attn_sink = nullptr;
    core::Descale descale_q, descale_k;
    void* out = nullptr;
    float* lse = nullptr;
    float* max_logits = nullptr;  // null: not wanted
    std::int64_t max_head = 0, max_token = 0;
    void* workspace = nullptr;

    bool sparse() const { return shape.topk > 0; }
    // Entries of the two index lists of a query token that count: those of the first, then those of the second.
    int list_entries(int request, int token) const {
        return indices.count(request, token, static_cast<int>(shape.topk)) + extra_entries(request, token);
    }
    int extra_entries(int request, int token) const {
        if (core::planted(core::PlantedFault::kExtraLengthIgnored)) return static_cast<int>(shape.extra_topk);
        return extra_indices.count(request, token, static_cast<int>(shape.extra_topk));
    }
};

LatentCall latent_call(const core::DecodeCall& call);
LatentCall latent_call(const core::SparsePrefillCall& call);

// The shape by which the engine plans a sparse prefill.
DecodeShape sparse_prefill_as_decode(const PrefillShape& shape);

// Query tokens share a row tile when they see the same keys (but for the causal mask): not in sparse calls.
core::RowTiling latent_tiling(const DecodeShape& shape);

}  // namespace flashmla::backends::cpu
