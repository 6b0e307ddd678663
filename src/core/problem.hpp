// What crosses from api to plan and dispatch: validated integers, and at dispatch the raw pointers beside them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/host_device.hpp"
#include "flashmla/plan.hpp"
#include "flashmla/prefill.hpp"
#include "flashmla/types.hpp"

namespace flashmla::core {

// Strides in elements of the tensor they belong to (bytes for fp8 caches); every last axis is contiguous.
struct DecodeStrides {
    std::int64_t q_b = 0, q_token = 0, q_head = 0;
    std::int64_t k_page = 0, k_token = 0, k_head = 0;
    std::int64_t out_b = 0, out_token = 0, out_head = 0;
    std::int64_t lse_b = 0, lse_head = 0, lse_token = 0;
    std::int64_t table_b = 0;
};

// Token ids a query token, and optionally how many of them count.
struct IndexLists {
    const std::int32_t* ids = nullptr;  // null: there are none
    std::int64_t ids_b = 0, ids_token = 0;
    const std::int32_t* lengths = nullptr;  // null: all of them
    std::int64_t lengths_b = 0, lengths_token = 0;

    FLASHMLA_HD const std::int32_t* of(std::int64_t request, std::int64_t token) const {
        return ids + request * ids_b + token * ids_token;
    }
    // Entries that count, of `width`.
    FLASHMLA_HD int count(std::int64_t request, std::int64_t token, int width) const {
        if (ids == nullptr) return 0;
        if (lengths == nullptr) return width;
        return min_of(max_of(lengths[request * lengths_b + token * lengths_token], 0), width);
    }
};

// A second cache that only index lists name tokens of; its format is the first one's.
struct ExtraCache {
    const void* data = nullptr;
    std::int64_t num_pages = 0;
    std::int64_t page_stride = 0, token_stride = 0, head_stride = 0;
};

// One factor a request, or one for all (step 0); null: 1.
struct Descale {
    const float* values = nullptr;
    std::int64_t step = 0;

    FLASHMLA_HD float of(std::int64_t request) const { return values == nullptr ? 1.0f : values[request * step]; }
};

// One decode call, checked: a backend may rely on every field.
struct DecodeCall {
    const DecodePlan* plan = nullptr;  // shapes, kernel, workers
    DecodeStrides strides;
    float softmax_scale = 0;
    std::int64_t num_pages = 0;  // pages of the cache pool
    const void* q = nullptr;
    const void* k_cache = nullptr;
    const std::int32_t* block_table = nullptr;
    const std::int32_t* lengths = nullptr;  // b lengths, or b + 1 cumulative ones
    bool lengths_are_cumulative = false;
    IndexLists indices;  // sparse: instead of table and lengths
    IndexLists extra_indices;
    ExtraCache extra_cache;
    const float* attn_sink = nullptr;  // null: none
    Descale descale_q, descale_k;
    void* out = nullptr;
    float* lse = nullptr;
    void* workspace = nullptr;
    StreamHandle stream = nullptr;
};

// One sparse prefill, checked: query tokens of one sequence over its latents as plain rows.
struct SparsePrefillCall {
    const PrefillPlan* plan = nullptr;
    std::int64_t q_token = 0, q_head = 0, kv_token = 0, out_token = 0, out_head = 0;
    std::int64_t lse_token = 0, lse_head = 0, max_token = 0, max_head = 0;
    float softmax_scale = 0;
    const void* q = nullptr;
    const void* kv = nullptr;
    IndexLists indices;  // of request 0
    const float* attn_sink = nullptr;
    void* out = nullptr;
    float* max_logits = nullptr;
    float* lse = nullptr;
    void* workspace = nullptr;
    StreamHandle stream = nullptr;
};

// Keys that one row of the block table can address, held to what a length (int32) can say.
inline int key_capacity(const DecodeShape& shape) {
    constexpr std::int64_t kMaxLength = 2147483647;  // max_pages and page_size are at most this, so the product fits
    return static_cast<int>(min_of(shape.max_pages * shape.page_size, kMaxLength));
}

// Length of request i from either form, held to [0, capacity], where capacity is key_capacity(shape): lengths that live
// in device memory cannot be checked before launch, and must never cause a wild read.
FLASHMLA_HD int request_length(const std::int32_t* lengths, bool cumulative, int capacity, int i) {
    const int len = cumulative ? lengths[i + 1] - lengths[i] : lengths[i];
    return min_of(max_of(len, 0), capacity);
}

}  // namespace flashmla::core
