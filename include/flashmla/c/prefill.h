// Prefill (prefill.hpp): token-sparse over latents, and dense multi-head attention with its backward.
#ifndef FLASHMLA_C_PREFILL_H
#define FLASHMLA_C_PREFILL_H

#include "flashmla/c/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct flashmla_prefill_shape {
    uint32_t struct_size;
    flashmla_operation operation;  // FLASHMLA_SPARSE_PREFILL, _DENSE_PREFILL or _DENSE_PREFILL_BACKWARD
    flashmla_dtype dtype;
    int32_t causal;
    int64_t b;                  // requests; 1 in sparse prefill
    int64_t total_q, total_kv;  // tokens, all requests together
    int64_t max_seqlen_q, max_seqlen_kv;
    int64_t h_q, h_kv, d_qk, d_v;
    int64_t topk;  // sparse prefill
} flashmla_prefill_shape;

FLASHMLA_API flashmla_status flashmla_plan_prefill(const flashmla_prefill_shape* shape,
                                                   const flashmla_device_info* device,
                                                   const flashmla_plan_options* options, flashmla_plan** plan);

typedef struct flashmla_sparse_prefill_args {
    uint32_t struct_size;
    int32_t has_softmax_scale;
    double softmax_scale;                // used when has_softmax_scale is 1; otherwise d_qk ** -0.5
    const flashmla_tensor* q;            // (s_q, h_q, d_qk)
    const flashmla_tensor* kv;           // (s_kv, h_kv, d_qk)
    const flashmla_tensor* indices;      // (s_q, h_kv, topk) int32
    const flashmla_tensor* topk_length;  // optional (s_q,) int32
    const flashmla_tensor* attn_sink;    // optional (h_q,) fp32
    const flashmla_tensor* out;          // written: (s_q, h_q, d_v)
    const flashmla_tensor* max_logits;   // written: (s_q, h_q) fp32
    const flashmla_tensor* lse;          // written: (s_q, h_q) fp32
} flashmla_sparse_prefill_args;

FLASHMLA_API flashmla_status flashmla_sparse_prefill_shape_of(const flashmla_sparse_prefill_args* args,
                                                              flashmla_prefill_shape* shape);
FLASHMLA_API flashmla_status flashmla_run_sparse_prefill(const flashmla_plan* plan,
                                                         const flashmla_sparse_prefill_args* args, void* workspace,
                                                         size_t workspace_bytes, flashmla_stream stream);
FLASHMLA_API flashmla_status flashmla_sparse_prefill(const flashmla_sparse_prefill_args* args,
                                                     const flashmla_plan_options* options, flashmla_stream stream);

typedef struct flashmla_dense_prefill_args {
    uint32_t struct_size;
    int32_t causal;
    int32_t has_softmax_scale;
    int32_t reserved;
    double softmax_scale;  // used when has_softmax_scale is 1; otherwise d_qk ** -0.5
    int64_t max_seqlen_q;  // bounds of the lengths
    int64_t max_seqlen_kv;
    const flashmla_tensor* q;              // (total_q, h_q, d_qk)
    const flashmla_tensor* k;              // (total_kv, h_kv, d_qk)
    const flashmla_tensor* v;              // (total_kv, h_kv, d_v)
    const flashmla_tensor* cu_seqlens_q;   // (b + 1,) int32
    const flashmla_tensor* cu_seqlens_kv;  // (b + 1,) int32
    const flashmla_tensor* out;            // written: (total_q, h_q, d_v)
    const flashmla_tensor* lse;            // written: (total_q, h_q) fp32
} flashmla_dense_prefill_args;

FLASHMLA_API flashmla_status flashmla_dense_prefill_shape_of(const flashmla_dense_prefill_args* args,
                                                             flashmla_prefill_shape* shape);
FLASHMLA_API flashmla_status flashmla_run_dense_prefill(const flashmla_plan* plan,
                                                        const flashmla_dense_prefill_args* args, void* workspace,
                                                        size_t workspace_bytes, flashmla_stream stream);
FLASHMLA_API flashmla_status flashmla_dense_prefill(const flashmla_dense_prefill_args* args,
                                                    const flashmla_plan_options* options, flashmla_stream stream);

typedef struct flashmla_dense_prefill_backward_args {
    uint32_t struct_size;
    uint32_t reserved;
    const flashmla_dense_prefill_args* forward;  // inputs, and the out and lse that the forward pass wrote
    const flashmla_tensor* dout;                 // shape of out
    const flashmla_tensor* dlse;                 // optional, shape of lse
    const flashmla_tensor* dq;                   // written, shapes of q, k, v
    const flashmla_tensor* dk;
    const flashmla_tensor* dv;
} flashmla_dense_prefill_backward_args;

// Plan with the shape of the forward pass and operation FLASHMLA_DENSE_PREFILL_BACKWARD.
FLASHMLA_API flashmla_status flashmla_run_dense_prefill_backward(const flashmla_plan* plan,
                                                                 const flashmla_dense_prefill_backward_args* args,
                                                                 void* workspace, size_t workspace_bytes,
                                                                 flashmla_stream stream);
FLASHMLA_API flashmla_status flashmla_dense_prefill_backward(const flashmla_dense_prefill_backward_args* args,
                                                             const flashmla_plan_options* options,
                                                             flashmla_stream stream);

#ifdef __cplusplus
}
#endif

#endif
