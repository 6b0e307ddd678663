// Merge of split results on the GPU: out = sum_k w_k O_k with w_k = 2^(lse_k - lse), in split order.
//
// A partial result covers one row tile of 64 rows x 512 columns, normalised:
//   partial_lse       [slot][row tile of the unit][64]     base 2, -inf for a row without keys
//   partial_exponent  [slot][row tile of the unit][2][64]  per column half: values are stored divided by 2^exponent
//   partial_out       [slot][row tile of the unit][4 column quarters][8][128 threads][8]  fp16, in the order of a WGMMA
//                     accumulator: thread t holds rows r = 16 * (t / 32) + t % 32 / 4 and r + 8; its eight values are
//                     {(r, c), (r, c + 1), (r + 8, c), (r + 8, c + 1)} for c = 16 * step + 2 * (t % 4), then for c + 8.
#pragma once

#include <cstdint>

#include "flashmla/status.hpp"
#include "flashmla/types.hpp"
#include "plan/split_schedule.hpp"

namespace flashmla::combine {

struct MergeParams {
    plan::WorkShape work;
    int num_workers = 0;
    int max_chunks = 0;               // batch-invariant schedule only
    const plan::Cut* cuts = nullptr;  // num_workers + 1, in device memory
    const float* partial_lse = nullptr;
    const float* partial_exponent = nullptr;
    const void* partial_out = nullptr;

    const std::int32_t* lengths = nullptr;
    bool lengths_are_cumulative = false;
    int capacity = 0;

    void* out = nullptr;  // 16-bit elements; strides in elements
    std::int64_t out_b = 0, out_token = 0, out_head = 0;
    float* lse = nullptr;
    std::int64_t lse_b = 0, lse_head = 0, lse_token = 0;
};

// Enqueues the merge as a programmatic dependent of the kernel enqueued before it on the stream: its CTAs may start early, and
// wait for that kernel's end before they read anything it wrote.
Status launch_merge(const MergeParams& params, DType dtype, int num_sms, StreamHandle stream);

}  // namespace flashmla::combine
