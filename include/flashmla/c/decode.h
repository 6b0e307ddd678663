// Decode over a paged cache, dense or token-sparse (decode.hpp).
#ifndef FLASHMLA_C_DECODE_H
#define FLASHMLA_C_DECODE_H

#include "flashmla/c/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct flashmla_decode_args {
    uint32_t struct_size;
    int32_t causal;  // 0 or 1
    int32_t has_softmax_scale;
    int32_t reserved;
    double softmax_scale;                  // used when has_softmax_scale is 1; otherwise d_qk ** -0.5
    const flashmla_tensor* q;              // (b, s_q, h_q, d_qk)
    const flashmla_tensor* k_cache;        // (num_pages, page_size, h_kv, record)
    const flashmla_tensor* block_table;    // dense: (b, max_pages) int32
    const flashmla_tensor* cache_seqlens;  // dense: (b,) int32, or
    const flashmla_tensor* cu_seqlens_k;   //        (b + 1,) int32
    const flashmla_tensor* indices;        // sparse: (b, s_q, topk) int32
    const flashmla_tensor* topk_length;    // optional (b,) or (b, s_q) int32
    const flashmla_tensor* extra_k_cache;  // optional second cache, with
    const flashmla_tensor* extra_indices;  //   (b, s_q, extra_topk) int32 and
    const flashmla_tensor* extra_topk_length;
    const flashmla_tensor* attn_sink;  // optional (h_q,) fp32
    const flashmla_tensor* descale_q;  // optional (1,) or (b,) fp32, fp8_flat
    const flashmla_tensor* descale_k;
    const flashmla_tensor* out;  // written: (b, s_q, h_q, d_v)
    const flashmla_tensor* lse;  // written: (b, h_q, s_q) fp32
} flashmla_decode_args;

typedef struct flashmla_decode_shape {
    uint32_t struct_size;
    flashmla_dtype dtype;  // of q
    flashmla_cache_format format;
    int32_t causal;
    int32_t attn_sink;  // 1: a sink is given
    int32_t reserved;
    int64_t b, s_q, h_q, h_kv, d_qk, d_v;
    int64_t page_size;
    int64_t max_pages;   // the block table's width; 0 when sparse
    int64_t topk;        // 0 = dense
    int64_t extra_topk;  // 0 = no extra cache
    int64_t extra_page_size;
} flashmla_decode_shape;

// The shape that args describe, after every check that reads no tensor contents.
FLASHMLA_API flashmla_status flashmla_decode_shape_of(const flashmla_decode_args* args, flashmla_decode_shape* shape);

// options may be null. On failure *plan is null.
FLASHMLA_API flashmla_status flashmla_plan_decode(const flashmla_decode_shape* shape,
                                                  const flashmla_device_info* device,
                                                  const flashmla_plan_options* options, flashmla_plan** plan);

// Allocates nothing and synchronises nothing. On CUDA enqueued on `stream`, on the CPU finished on return.
FLASHMLA_API flashmla_status flashmla_run_decode(const flashmla_plan* plan, const flashmla_decode_args* args,
                                                 void* workspace, size_t workspace_bytes, flashmla_stream stream);

// Plan, workspace and run in one call. options may be null.
FLASHMLA_API flashmla_status flashmla_decode(const flashmla_decode_args* args, const flashmla_plan_options* options,
                                             flashmla_stream stream);

#ifdef __cplusplus
}
#endif

#endif
