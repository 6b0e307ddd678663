// Sparse prefill: what the caller passed becomes a checked call or one Status, and runs.
#include "api/check_prefill.hpp"
#include "api/run_prefill.hpp"
#include "api/scale.hpp"
#include "api/tensor_check.hpp"
#include "core/problem.hpp"
#include "dispatch/dispatch.hpp"
#include "flashmla/prefill.hpp"
#include "plan/shape.hpp"

namespace flashmla {
namespace {

struct CheckedSparsePrefill {
    PrefillShape shape;
    Device device;
    core::SparsePrefillCall call;  // without plan, workspace and stream
};

using api::given;

Status check_ranks(const SparsePrefillArgs& args) {
    return api::first_error({
        api::check_rank("q", args.q, "(s_q, h_q, d_qk)", 3),
        api::check_rank("kv", args.kv, "(s_kv, h_kv, d_qk)", 3),
        api::check_rank("indices", args.indices, "(s_q, h_kv, topk)", 3),
        given(args.topk_length) ? api::check_rank("topk_length", args.topk_length, "(s_q,)", 1) : Status{},
        given(args.attn_sink) ? api::check_rank("attn_sink", args.attn_sink, "(h_q,)", 1) : Status{},
        api::check_rank("out", args.out, "(s_q, h_q, d_v)", 3),
        api::check_rank("max_logits", args.max_logits, "(s_q, h_q)", 2),
        api::check_rank("lse", args.lse, "(s_q, h_q)", 2),
    });
}

Status check_shapes(const SparsePrefillArgs& args, const PrefillShape& shape) {
    if (Status status = plan::check_shape(shape); !status.ok()) {
        return invalid_argument("q " + api::shape_text(args.q) + ", kv " + api::shape_text(args.kv) + ", indices " +
                                api::shape_text(args.indices) + ", out " + api::shape_text(args.out) + ": " +
                                status.message());
    }
    const api::Axis s_q{"s_q", shape.total_q};
    const api::Axis h_q{"h_q", shape.h_q};
    return api::first_error({
        api::check_shape("kv", args.kv, {{"s_kv"}, {"h_kv", 1}, {"d_qk", shape.d_qk}}),
        api::check_shape("indices", args.indices, {s_q, {"h_kv", 1}, {"topk"}}),
        given(args.topk_length) ? api::check_shape("topk_length", args.topk_length, {s_q}) : Status{},
        given(args.attn_sink) ? api::check_shape("attn_sink", args.attn_sink, {h_q}) : Status{},
        api::check_shape("out", args.out, {s_q, h_q, {"d_v"}}),
        api::check_shape("max_logits", args.max_logits, {s_q, h_q}),
        api::check_shape("lse", args.lse, {s_q, h_q}),
    });
}

Status check_tensors(SparsePrefillArgs& args, DType dtype) {
    return api::check_tensors({{"q", args.q, dtype},
                               {"kv", args.kv, dtype, api::kAsQ},
                               {"indices", args.indices, DType::kInt32},
                               {"topk_length", args.topk_length, DType::kInt32},
                               {"attn_sink", args.attn_sink, DType::kFloat32},
                               {"out", args.out, dtype, api::kAsQ, api::kWrittenRows},
                               {"max_logits", args.max_logits, DType::kFloat32, "", api::kWrittenValues},
                               {"lse", args.lse, DType::kFloat32, "", api::kWrittenValues}},
                              args.q.device);
}

Result<CheckedSparsePrefill> check(const SparsePrefillArgs& given_args) {
    if (Status status = check_ranks(given_args); !status.ok()) return status;
    SparsePrefillArgs args = given_args;  // strides that mean nothing get packed values on the way
    CheckedSparsePrefill checked;
    checked.device = args.q.device;
    checked.shape = {.operation = Operation::kSparsePrefill,
                     .b = 1,
                     .total_q = args.q.shape[0],
                     .total_kv = args.kv.shape[0],
                     .max_seqlen_q = args.q.shape[0],
                     .max_seqlen_kv = args.kv.shape[0],
                     .h_q = args.q.shape[1],
                     .h_kv = args.kv.shape[1],
                     .d_qk = args.q.shape[2],
                     .d_v = args.out.shape[2],
                     .topk = args.indices.shape[2],
                     .dtype = args.q.dtype,
                     .causal = false};
    if (Status status = check_shapes(args, checked.shape); !status.ok()) return status;
    if (Status status = check_tensors(args, checked.shape.dtype); !status.ok()) return status;
    checked.call = {.plan = nullptr,
                    .q_token = args.q.stride[0],
                    .q_head = args.q.stride[1],
                    .kv_token = args.kv.stride[0],
                    .out_token = args.out.stride[0],
                    .out_head = args.out.stride[1],
                    .lse_token = args.lse.stride[0],
                    .lse_head = args.lse.stride[1],
                    .max_token = args.max_logits.stride[0],
                    .max_head = args.max_logits.stride[1],
                    .softmax_scale = api::scale_or_default(args, checked.shape.d_qk),
                    .q = args.q.data,
                    .kv = args.kv.data,
                    .indices = {.ids = static_cast<const std::int32_t*>(args.indices.data),
                                .ids_b = 0,
                                .ids_token = args.indices.stride[0],
                                .lengths = static_cast<const std::int32_t*>(args.topk_length.data),
                                .lengths_b = 0,
                                .lengths_token = args.topk_length.stride[0]},
                    .attn_sink = static_cast<const float*>(args.attn_sink.data),
                    .out = args.out.data,
                    .max_logits = static_cast<float*>(args.max_logits.data),
                    .lse = static_cast<float*>(args.lse.data),
                    .workspace = nullptr,
                    .stream = nullptr};
    return checked;
}

}  // namespace

Result<PrefillShape> sparse_prefill_shape(const SparsePrefillArgs& args) {
    Result<CheckedSparsePrefill> checked = check(args);
    if (!checked.ok()) return checked.status();
    return checked.value().shape;
}

Status run_sparse_prefill(const PrefillPlan& plan, const SparsePrefillArgs& args, void* workspace,
                          std::size_t workspace_bytes, StreamHandle stream) {
    Result<CheckedSparsePrefill> checked = check(args);
    if (!checked.ok()) return checked.status();
    if (Status status =
            api::check_prefill_run(plan, checked.value().shape, checked.value().device, workspace, workspace_bytes);
        !status.ok()) {
        return status;
    }
    core::SparsePrefillCall call = checked.value().call;
    call.plan = &plan;
    call.workspace = workspace;
    call.stream = stream;
    return dispatch::sparse_prefill(call);
}

Status sparse_prefill(const SparsePrefillArgs& args, const PlanOptions& options, StreamHandle stream) {
    const Result<PrefillShape> shape = sparse_prefill_shape(args);
    if (!shape.ok()) return shape.status();
    return api::plan_and_run(shape.value(), args.q.device, options, stream,
                             [&](const PrefillPlan& plan, void* workspace) {
                                 return run_sparse_prefill(plan, args, workspace, plan.workspace_bytes, stream);
                             });
}

}  // namespace flashmla
