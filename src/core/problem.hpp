// What crosses from api to plan and dispatch: validated integers, and at dispatch the raw pointers beside them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/host_device.hpp"
#include "flashmla/plan.hpp"
#include "flashmla/types.hpp"

namespace flashmla::core {

// Strides in elements of the tensor they belong to; every last axis is contiguous.
struct DecodeStrides {
    std::int64_t q_b = 0, q_token = 0, q_head = 0;
    std::int64_t k_page = 0, k_token = 0, k_head = 0;
    std::int64_t out_b = 0, out_token = 0, out_head = 0;
    std::int64_t lse_b = 0, lse_head = 0, lse_token = 0;
    std::int64_t table_b = 0;
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
    void* out = nullptr;
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
