// What crosses from host to device: trivially copyable, passed as a grid constant.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "combine/partials.hpp"
#include "plan/split_schedule.hpp"

namespace flashmla::backends::sm90::decode_dense {

struct Params {
    CUtensorMap q;    // (d_qk, heads a KV head, s_q, h_kv, b); box 64 x tile heads x tokens
    CUtensorMap kv;   // (d_qk, page, h_kv, pages); box 64 x 64 x 1 x 1
    CUtensorMap out;  // (d_v, heads a KV head, s_q, h_kv, b); box as q's

    plan::WorkShape work;
    plan::FixedShares shares;
    int num_workers;
    int max_chunks;    // batch-invariant slots a unit
    int box_rows;      // rows that one q box fills, at most 64; the rest of a tile holds garbage
    float scale_log2;  // softmax scale * log2(e)

    const std::int32_t* lengths;
    bool lengths_are_cumulative;
    int capacity;  // max_pages * page_size
    const std::int32_t* block_table;
    std::int64_t table_stride;

    const char* kv_base;  // for L2 prefetch of whole pages; null when a page is not contiguous
    std::int64_t page_stride_bytes;
    std::int64_t num_pages;

    void* out_base;  // 16-bit elements, for rows that no bulk copy writes
    std::int64_t out_b, out_token, out_head;
    float* lse;
    std::int64_t lse_b, lse_head, lse_token;

    // Partial results: layout in combine/partials.hpp.
    combine::PartialRow* partial_rows;
    void* partial_out;
};
static_assert(sizeof(Params) <= 4096);

}  // namespace flashmla::backends::sm90::decode_dense
