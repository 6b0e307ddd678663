// Merge of split results on the GPU, for the batch-invariant schedule: out = sum_k w_k O_k with w_k = 2^(lse_k - lse),
// in chunk order. (In the balanced schedule the kernel merges its own splits.) Partial results: combine/partials.hpp.
#pragma once

#include <cstdint>

#include "combine/partials.hpp"
#include "flashmla/status.hpp"
#include "flashmla/types.hpp"
#include "plan/split_schedule.hpp"

namespace flashmla::combine {

struct MergeParams {
    plan::WorkShape work;
    int max_chunks = 0;
    const PartialRow* partial_rows = nullptr;
    const void* partial_out = nullptr;

    const std::int32_t* lengths = nullptr;
    bool lengths_are_cumulative = false;
    int capacity = 0;

    void* out = nullptr;  // 16-bit elements; strides in elements
    std::int64_t out_b = 0, out_token = 0, out_head = 0;
    float* lse = nullptr;
    std::int64_t lse_b = 0, lse_head = 0, lse_token = 0;
};

// Enqueues the merge as a programmatic dependent of the kernel enqueued before it on the stream: its CTAs may start
// early, and wait for that kernel's end before they read anything it wrote.
Status launch_merge(const MergeParams& params, DType dtype, int num_sms, StreamHandle stream);

}  // namespace flashmla::combine
