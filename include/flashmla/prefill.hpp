// Prefill: token-sparse over latents, and dense multi-head attention over ragged batches, with its backward.
//
// Scaled logits, natural-log LSE, rows without a visible key: docs/numerics.md. Plan and run are apart as in
// decode.hpp.
#pragma once

#include <cstddef>

#include "flashmla/plan.hpp"
#include "flashmla/status.hpp"
#include "flashmla/tensor_view.hpp"

namespace flashmla {

struct PrefillShape {
    Operation operation = Operation::kDensePrefill;  // or kSparsePrefill, kDensePrefillBackward
    std::int64_t b = 1;                              // requests; 1 in sparse prefill
    std::int64_t total_q = 0;                        // query tokens, all requests together
    std::int64_t total_kv = 0;                       // key tokens, all requests together
    std::int64_t max_seqlen_q = 0;
    std::int64_t max_seqlen_kv = 0;
    std::int64_t h_q = 1;
    std::int64_t h_kv = 1;
    std::int64_t d_qk = 192;
    std::int64_t d_v = 128;
    std::int64_t topk = 0;  // sparse prefill
    DType dtype = DType::kBFloat16;
    bool causal = false;
    friend bool operator==(const PrefillShape&, const PrefillShape&) = default;
};

struct PrefillPlan {
    PrefillShape shape;
    PlanOptions options;
    DeviceInfo device;
    KernelId kernel_id{};
    std::string kernel;
    std::string reason;
    std::vector<KernelVerdict> verdicts;  // every kernel of the operation
    int num_workers = 1;
    std::size_t workspace_bytes = 0;
};

Result<PrefillPlan> plan_prefill(const PrefillShape& shape, const DeviceInfo& device, const PlanOptions& options = {});

// ---- Sparse: every query token attends to the latents its indices name. Not causal: the indices decide.

struct SparsePrefillArgs {
    TensorView q{};            // (s_q, h_q, d_qk) bf16 or fp16
    TensorView kv{};           // (s_kv, h_kv, d_qk) q's dtype; h_kv is 1
    TensorView indices{};      // (s_q, h_kv, topk) int32; outside [0, s_kv) = masked
    TensorView topk_length{};  // optional (s_q,) int32: entries at or past it are never read
    TensorView attn_sink{};    // optional (h_q,) fp32
    TensorView out{};          // (s_q, h_q, d_v) q's dtype
    TensorView max_logits{};   // (s_q, h_q) fp32: largest scaled logit; -inf for a row without a key
    TensorView lse{};          // (s_q, h_q) fp32, natural log; +inf for a row without a key; ignores the sink
    double softmax_scale = 0;  // used when has_softmax_scale; otherwise d_qk ** -0.5
    bool has_softmax_scale = false;
};

Result<PrefillShape> sparse_prefill_shape(const SparsePrefillArgs& args);
Status run_sparse_prefill(const PrefillPlan& plan, const SparsePrefillArgs& args, void* workspace,
                          std::size_t workspace_bytes, StreamHandle stream = nullptr);
Status sparse_prefill(const SparsePrefillArgs& args, const PlanOptions& options = {}, StreamHandle stream = nullptr);

// ---- Dense: plain multi-head attention over a ragged batch.

struct DensePrefillArgs {
    TensorView q{};                 // (total_q, h_q, d_qk) bf16 or fp16
    TensorView k{};                 // (total_kv, h_kv, d_qk); h_q is a multiple of h_kv
    TensorView v{};                 // (total_kv, h_kv, d_v)
    TensorView cu_seqlens_q{};      // (b + 1,) int32, from 0 to total_q
    TensorView cu_seqlens_kv{};     // (b + 1,) int32, from 0 to total_kv
    TensorView out{};               // (total_q, h_q, d_v) q's dtype
    TensorView lse{};               // (total_q, h_q) fp32, natural log; +inf for a row without a key
    std::int64_t max_seqlen_q = 0;  // bounds of the lengths, as the caller knows them (the lengths may be on a device)
    std::int64_t max_seqlen_kv = 0;
    double softmax_scale = 0;  // used when has_softmax_scale; otherwise d_qk ** -0.5
    bool has_softmax_scale = false;
    bool causal = false;  // query i of a request sees keys [0, max(0, len_kv - len_q + i + 1))
};

Result<PrefillShape> dense_prefill_shape(const DensePrefillArgs& args);
Status run_dense_prefill(const PrefillPlan& plan, const DensePrefillArgs& args, void* workspace,
                         std::size_t workspace_bytes, StreamHandle stream = nullptr);
Status dense_prefill(const DensePrefillArgs& args, const PlanOptions& options = {}, StreamHandle stream = nullptr);

struct DensePrefillBackwardArgs {
    DensePrefillArgs forward;     // inputs, and the out and lse that the forward pass wrote
    TensorView dout{};            // shape of out, q's dtype
    TensorView dlse{};            // optional, shape of lse, fp32: gradient arriving through the LSE
    TensorView dq{}, dk{}, dv{};  // shapes of q, k, v; q's dtype; written in full
};

// The plan: plan_prefill for dense_prefill_shape(args.forward) with operation kDensePrefillBackward. out and lse count
// as inputs: the softmax weights are exp(scaled logit - lse).
Status run_dense_prefill_backward(const PrefillPlan& plan, const DensePrefillBackwardArgs& args, void* workspace,
                                  std::size_t workspace_bytes, StreamHandle stream = nullptr);
Status dense_prefill_backward(const DensePrefillBackwardArgs& args, const PlanOptions& options = {},
                              StreamHandle stream = nullptr);

}  // namespace flashmla
