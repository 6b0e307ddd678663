#include "flashmla/prefill.hpp"

#include "capi/planned_operation.hpp"
#include "capi/reader.hpp"
#include "flashmla/c/prefill.h"

namespace flashmla::capi {
namespace {

Status read_sparse(const flashmla_sparse_prefill_args* given, SparsePrefillArgs& args) {
    Reader read;
    const auto c = read.structure("args", given);
    read.flag("has_softmax_scale", c.has_softmax_scale, args.has_softmax_scale);
    args.softmax_scale = c.softmax_scale;
    read.tensor("q", c.q, args.q);
    read.tensor("kv", c.kv, args.kv);
    read.tensor("indices", c.indices, args.indices);
    read.tensor("topk_length", c.topk_length, args.topk_length);
    read.tensor("attn_sink", c.attn_sink, args.attn_sink);
    read.tensor("out", c.out, args.out);
    read.tensor("max_logits", c.max_logits, args.max_logits);
    read.tensor("lse", c.lse, args.lse);
    return read.status();
}

Status read_dense_as(const char* argument, const flashmla_dense_prefill_args* given, DensePrefillArgs& args) {
    Reader read;
    const auto c = read.structure(argument, given);
    if (!read.status().ok()) return read.status();
    Reader named(argument);
    named.reserved(".reserved", c.reserved);
    if (!named.status().ok()) return named.status();
    read.flag("causal", c.causal, args.causal);
    read.flag("has_softmax_scale", c.has_softmax_scale, args.has_softmax_scale);
    args.softmax_scale = c.softmax_scale;
    args.max_seqlen_q = c.max_seqlen_q;
    args.max_seqlen_kv = c.max_seqlen_kv;
    read.tensor("q", c.q, args.q);
    read.tensor("k", c.k, args.k);
    read.tensor("v", c.v, args.v);
    read.tensor("cu_seqlens_q", c.cu_seqlens_q, args.cu_seqlens_q);
    read.tensor("cu_seqlens_kv", c.cu_seqlens_kv, args.cu_seqlens_kv);
    read.tensor("out", c.out, args.out);
    read.tensor("lse", c.lse, args.lse);
    return read.status();
}

Status read_dense(const flashmla_dense_prefill_args* given, DensePrefillArgs& args) {
    return read_dense_as("args", given, args);
}

Status read_backward(const flashmla_dense_prefill_backward_args* given, DensePrefillBackwardArgs& args) {
    Reader read;
    const auto c = read.structure("args", given);
    read.reserved("args.reserved", c.reserved);
    if (!read.status().ok()) return read.status();
    if (Status status = read_dense_as("forward", c.forward, args.forward); !status.ok()) return status;
    read.tensor("dout", c.dout, args.dout);
    read.tensor("dlse", c.dlse, args.dlse);
    read.tensor("dq", c.dq, args.dq);
    read.tensor("dk", c.dk, args.dk);
    read.tensor("dv", c.dv, args.dv);
    return read.status();
}

Status read_shape(const flashmla_prefill_shape* given, PrefillShape& shape) {
    Reader read;
    const auto c = read.structure("shape", given);
    read.operation("operation", c.operation, shape.operation);
    read.dtype("dtype", c.dtype, shape.dtype);
    read.flag("causal", c.causal, shape.causal);
    shape.b = c.b;
    shape.total_q = c.total_q;
    shape.total_kv = c.total_kv;
    shape.max_seqlen_q = c.max_seqlen_q;
    shape.max_seqlen_kv = c.max_seqlen_kv;
    shape.h_q = c.h_q;
    shape.h_kv = c.h_kv;
    shape.d_qk = c.d_qk;
    shape.d_v = c.d_v;
    shape.topk = c.topk;
    return read.status();
}

flashmla_prefill_shape c_shape(const PrefillShape& shape) {
    // By position, so that a field that joins the C++ struct cannot be forgotten here.
    const auto& [operation, b, total_q, total_kv, max_seqlen_q, max_seqlen_kv, h_q, h_kv, d_qk, d_v, topk, dtype,
                 causal] = shape;
    flashmla_prefill_shape c{};
    c.operation = to_c(kOperations, operation);
    c.dtype = to_c(kDTypes, dtype);
    c.causal = causal ? 1 : 0;
    c.b = b;
    c.total_q = total_q;
    c.total_kv = total_kv;
    c.max_seqlen_q = max_seqlen_q;
    c.max_seqlen_kv = max_seqlen_kv;
    c.h_q = h_q;
    c.h_kv = h_kv;
    c.d_qk = d_qk;
    c.d_v = d_v;
    c.topk = topk;
    return c;
}

constexpr PlannedOperation<PrefillPlan, SparsePrefillArgs, flashmla_sparse_prefill_args> kSparse = {
    .planner = "prefill", .read_args = read_sparse, .run_planned = run_sparse_prefill, .plan_and_run = sparse_prefill};
constexpr PlannedOperation<PrefillPlan, DensePrefillArgs, flashmla_dense_prefill_args> kDense = {
    .planner = "prefill", .read_args = read_dense, .run_planned = run_dense_prefill, .plan_and_run = dense_prefill};
constexpr PlannedOperation<PrefillPlan, DensePrefillBackwardArgs, flashmla_dense_prefill_backward_args> kBackward = {
    .planner = "prefill",
    .read_args = read_backward,
    .run_planned = run_dense_prefill_backward,
    .plan_and_run = dense_prefill_backward};

}  // namespace

extern "C" {

flashmla_status flashmla_plan_prefill(const flashmla_prefill_shape* shape, const flashmla_device_info* device,
                                      const flashmla_plan_options* options, flashmla_plan** plan) {
    return make_plan<PrefillShape, PrefillPlan, flashmla_prefill_shape>({shape, device, options, plan}, read_shape,
                                                                        plan_prefill);
}

flashmla_status flashmla_sparse_prefill_shape_of(const flashmla_sparse_prefill_args* args,
                                                 flashmla_prefill_shape* shape) {
    return shape_of(args, shape, read_sparse, sparse_prefill_shape, c_shape);
}

flashmla_status flashmla_run_sparse_prefill(const flashmla_plan* plan, const flashmla_sparse_prefill_args* args,
                                            void* workspace, size_t workspace_bytes, flashmla_stream stream) {
    return kSparse.run(plan, args, workspace, workspace_bytes, stream);
}

flashmla_status flashmla_sparse_prefill(const flashmla_sparse_prefill_args* args, const flashmla_plan_options* options,
                                        flashmla_stream stream) {
    return kSparse.call(args, options, stream);
}

flashmla_status flashmla_dense_prefill_shape_of(const flashmla_dense_prefill_args* args,
                                                flashmla_prefill_shape* shape) {
    return shape_of(args, shape, read_dense, dense_prefill_shape, c_shape);
}

flashmla_status flashmla_run_dense_prefill(const flashmla_plan* plan, const flashmla_dense_prefill_args* args,
                                           void* workspace, size_t workspace_bytes, flashmla_stream stream) {
    return kDense.run(plan, args, workspace, workspace_bytes, stream);
}

flashmla_status flashmla_dense_prefill(const flashmla_dense_prefill_args* args, const flashmla_plan_options* options,
                                       flashmla_stream stream) {
    return kDense.call(args, options, stream);
}

flashmla_status flashmla_run_dense_prefill_backward(const flashmla_plan* plan,
                                                    const flashmla_dense_prefill_backward_args* args, void* workspace,
                                                    size_t workspace_bytes, flashmla_stream stream) {
    return kBackward.run(plan, args, workspace, workspace_bytes, stream);
}

flashmla_status flashmla_dense_prefill_backward(const flashmla_dense_prefill_backward_args* args,
                                                const flashmla_plan_options* options, flashmla_stream stream) {
    return kBackward.call(args, options, stream);
}

}  // extern "C"

}  // namespace flashmla::capi
