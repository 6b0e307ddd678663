// MLA decode over a paged cache, dense or token-sparse: out = softmax(softmax_scale * q . k) v, where v is the first
// d_v columns of k.
#pragma once

#include <cstddef>

#include "flashmla/cache_format.hpp"
#include "flashmla/plan.hpp"
#include "flashmla/status.hpp"
#include "flashmla/tensor_view.hpp"
#include "flashmla/types.hpp"

namespace flashmla {

// Dense by block_table and lengths, or sparse by indices; a tensor of rank 0 is one that is not given. What belongs to
// the other way is refused, not ignored.
struct DecodeArgs {
    TensorView q{};              // (b, s_q, h_q, d_qk) bf16 or fp16 (e4m3 with an fp8_flat cache); last axis contiguous
    TensorView k_cache{};        // (num_pages, page_size, h_kv, record), format by cache_format_of; page stride free
    TensorView block_table{};    // (b, max_pages) int32; entries past a request's length are never read through
    TensorView cache_seqlens{};  // (b,) int32, 0 allowed. Give this or cu_seqlens_k, not both (the other has rank 0)
    TensorView cu_seqlens_k{};   // (b + 1,) int32, cumulative lengths: request i has cu[i + 1] - cu[i] keys

    // Sparse: query token (i, j) attends to the tokens its indices name; a token is page * page_size + offset.
    TensorView indices{};  // (b, s_q, topk) int32; outside [0, num_pages * page_size) = masked. Needs causal = false
    TensorView
        topk_length{};  // optional (b,) or (b, s_q) int32, held to [0, topk]: entries at or past it are never read
    TensorView extra_k_cache{};      // optional second cache, k_cache's dtype and record, a page size of its own
    TensorView extra_indices{};      // (b, s_q, extra_topk) int32, into the extra cache
    TensorView extra_topk_length{};  // optional (b,) or (b, s_q) int32

    TensorView attn_sink{};  // optional (h_q,) fp32: out is scaled by exp(lse) / (exp(lse) + exp(sink)); lse is not
    TensorView
        descale_q{};  // optional, fp8_flat: (1,) or (b,) fp32, what an e4m3 query value is worth; 1.0 if not given
    TensorView descale_k{};  // optional, fp8_flat: (1,) or (b,) fp32, what a cache value is worth; 1.0 if not given

    TensorView out{};  // (b, s_q, h_q, d_v) q's dtype (bf16 for an e4m3 q); written in full, rows without a key 0
    TensorView lse{};  // (b, h_q, s_q) fp32, natural log; +inf for rows without a key
    double softmax_scale = 0;  // used when has_softmax_scale; otherwise d_qk ** -0.5
    bool has_softmax_scale = false;
    bool causal = false;  // query token i sees keys [0, max(0, len - s_q + i + 1))
};

// The shape that args describe, after checking everything that can be checked without reading tensor contents.
Result<DecodeShape> decode_shape(const DecodeArgs& args);

// Runs a plan. Allocates nothing and synchronises nothing. `workspace` lies on the tensors' device, is aligned to 256
// bytes and holds at least plan.workspace_bytes; its contents on entry do not matter, and concurrent runs need separate
// ones. On CUDA the work is enqueued on `stream`; on the CPU it is finished on return. Every error is reported before
// anything is launched or written, except a failed launch (kRuntimeError).
Status run_decode(const DecodePlan& plan, const DecodeArgs& args, void* workspace, std::size_t workspace_bytes,
                  StreamHandle stream = nullptr);

// Plan + workspace + run in one call, for callers who need no control over either.
Status decode(const DecodeArgs& args, const PlanOptions& options = {}, StreamHandle stream = nullptr);

}  // namespace flashmla
