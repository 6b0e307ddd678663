#include "api/check_prefill.hpp"

#include <string>

#include "api/scale.hpp"
#include "api/tensor_check.hpp"
#include "plan/shape.hpp"

namespace flashmla::api {
namespace {

// A result of the forward pass that the backward pass reads.
constexpr MemoryRules kReadValues{LastAxis::kAnyStride, Overlap::kAllowed};

Status check_forward_ranks(const DensePrefillArgs& args) {
    return first_error({
        check_rank("q", args.q, "(total_q, h_q, d_qk)", 3), check_rank("k", args.k, "(total_kv, h_kv, d_qk)", 3),
        check_rank("v", args.v, "(total_kv, h_kv, d_v)", 3),
        check_rank("cu_seqlens_q", args.cu_seqlens_q, "(b + 1,)", 1),
        check_rank("cu_seqlens_kv", args.cu_seqlens_kv, "(b + 1,)", 1),
        check_rank("out", args.out, "(total_q, h_q, d_v)", 3), check_rank("lse", args.lse, "(total_q, h_q)", 2),
        check_shape("cu_seqlens_q", args.cu_seqlens_q, {{"b + 1"}}),  // b is one less
    });
}

PrefillShape shape_of(const DensePrefillArgs& args, Operation operation) {
    return {.operation = operation,
            .b = args.cu_seqlens_q.shape[0] - 1,
            .total_q = args.q.shape[0],
            .total_kv = args.k.shape[0],
            .max_seqlen_q = args.max_seqlen_q,
            .max_seqlen_kv = args.max_seqlen_kv,
            .h_q = args.q.shape[1],
            .h_kv = args.k.shape[1],
            .d_qk = args.q.shape[2],
            .d_v = args.v.shape[2],
            .dtype = args.q.dtype,
            .causal = args.causal};
}

Status check_forward_shapes(const DensePrefillArgs& args, const PrefillShape& shape) {
    if (Status status = plan::check_shape(shape); !status.ok()) {
        return invalid_argument("q " + shape_text(args.q) + ", k " + shape_text(args.k) + ", v " + shape_text(args.v) +
                                ", cu_seqlens_q " + shape_text(args.cu_seqlens_q) + ": " + status.message());
    }
    const Axis total_q{"total_q", shape.total_q};
    const Axis total_kv{"total_kv", shape.total_kv};
    const Axis h_q{"h_q", shape.h_q};
    const Axis h_kv{"h_kv", shape.h_kv};
    return first_error({
        check_shape("k", args.k, {total_kv, h_kv, {"d_qk", shape.d_qk}}),
        check_shape("v", args.v, {total_kv, h_kv, {"d_v"}}),
        check_shape("cu_seqlens_kv", args.cu_seqlens_kv, {{"b + 1", shape.b + 1}}),
        check_shape("out", args.out, {total_q, h_q, {"d_v", shape.d_v}}),
        check_shape("lse", args.lse, {total_q, h_q}),
    });
}

template <class T>
core::HeadRows<T> rows_of(const TensorView& view) {
    return {static_cast<T*>(view.data), view.stride[0], view.stride[1]};
}

// Checks and packs; `results`: out and lse are written.
Result<CheckedPrefill> check_forward(const DensePrefillArgs& given, Operation operation, bool results) {
    if (Status status = check_forward_ranks(given); !status.ok()) return status;
    DensePrefillArgs args = given;  // strides that mean nothing get packed values on the way
    const PrefillShape shape = shape_of(args, operation);
    if (Status status = check_forward_shapes(args, shape); !status.ok()) return status;
    const Status status =
        check_tensors({{"q", args.q, shape.dtype},
                       {"k", args.k, shape.dtype, kAsQ},
                       {"v", args.v, shape.dtype, kAsQ},
                       {"cu_seqlens_q", args.cu_seqlens_q, DType::kInt32},
                       {"cu_seqlens_kv", args.cu_seqlens_kv, DType::kInt32},
                       {"out", args.out, shape.dtype, kAsQ, results ? kWrittenRows : MemoryRules{}},
                       {"lse", args.lse, DType::kFloat32, "", results ? kWrittenValues : kReadValues}},
                      args.q.device);
    if (!status.ok()) return status;
    return CheckedPrefill{
        .shape = shape,
        .device = args.q.device,
        .call = {.plan = nullptr,
                 .softmax_scale = scale_or_default(args, shape.d_qk),
                 .q = rows_of<const std::uint16_t>(args.q),
                 .k = rows_of<const std::uint16_t>(args.k),
                 .v = rows_of<const std::uint16_t>(args.v),
                 .cu_seqlens_q = static_cast<const std::int32_t*>(args.cu_seqlens_q.data),
                 .cu_seqlens_kv = static_cast<const std::int32_t*>(args.cu_seqlens_kv.data),
                 .out = rows_of<std::uint16_t>(args.out),
                 .lse = rows_of<float>(args.lse)},
    };
}

Status check_cumulative(const char* tensor, const std::int32_t* values, std::int64_t b, std::int64_t total,
                        std::int64_t longest, const char* longest_name) {
    const auto complain = [&](std::int64_t at, const std::string& wanted) {
        return invalid_argument(std::string(tensor) + ": got " + std::to_string(values[at]) + " at " +
                                std::to_string(at) + ", wanted " + wanted);
    };
    if (values[0] != 0) return complain(0, "0");
    for (std::int64_t i = 0; i < b; ++i) {
        if (values[i + 1] < values[i]) return complain(i + 1, "at least " + std::to_string(values[i]));
        const std::int64_t length = std::int64_t{values[i + 1]} - values[i];
        if (length > longest) {
            return invalid_argument(std::string(longest_name) + ": got " + std::to_string(longest) +
                                    ", wanted at least " + std::to_string(length) + ", the length of request " +
                                    std::to_string(i));
        }
    }
    if (values[b] != total) return complain(b, "the number of tokens, " + std::to_string(total));
    return {};
}

}  // namespace

Result<CheckedPrefill> check_dense_prefill(const DensePrefillArgs& args) {
    return check_forward(args, Operation::kDensePrefill, true);
}

Result<CheckedBackward> check_dense_prefill_backward(const DensePrefillBackwardArgs& given) {
    Result<CheckedPrefill> forward = check_forward(given.forward, Operation::kDensePrefillBackward, false);
    if (!forward.ok()) return forward.status();
    DensePrefillBackwardArgs args = given;
    const PrefillShape& shape = forward.value().shape;
    const bool with_dlse = args.dlse.rank != 0;
    const Axis total_q{"total_q", shape.total_q};
    const Axis total_kv{"total_kv", shape.total_kv};
    const Axis h_q{"h_q", shape.h_q};
    const Axis h_kv{"h_kv", shape.h_kv};
    const Axis d_qk{"d_qk", shape.d_qk};
    const Axis d_v{"d_v", shape.d_v};
    if (Status status = first_error({
            check_rank("dout", args.dout, "(total_q, h_q, d_v)", 3),
            with_dlse ? check_rank("dlse", args.dlse, "(total_q, h_q)", 2) : Status{},
            check_rank("dq", args.dq, "(total_q, h_q, d_qk)", 3),
            check_rank("dk", args.dk, "(total_kv, h_kv, d_qk)", 3),
            check_rank("dv", args.dv, "(total_kv, h_kv, d_v)", 3),
        });
        !status.ok()) {
        return status;
    }
    if (Status status = first_error({
            check_shape("dout", args.dout, {total_q, h_q, d_v}),
            with_dlse ? check_shape("dlse", args.dlse, {total_q, h_q}) : Status{},
            check_shape("dq", args.dq, {total_q, h_q, d_qk}),
            check_shape("dk", args.dk, {total_kv, h_kv, d_qk}),
            check_shape("dv", args.dv, {total_kv, h_kv, d_v}),
        });
        !status.ok()) {
        return status;
    }
    const Device device = forward.value().device;
    if (Status status = check_tensors({{"dout", args.dout, shape.dtype, kAsQ},
                                       {"dq", args.dq, shape.dtype, kAsQ, kWrittenRows},
                                       {"dk", args.dk, shape.dtype, kAsQ, kWrittenRows},
                                       {"dv", args.dv, shape.dtype, kAsQ, kWrittenRows},
                                       {"dlse", args.dlse, DType::kFloat32, "", kReadValues}},
                                      device);
        !status.ok()) {
        return status;
    }
    return CheckedBackward{.shape = shape,
                           .device = device,
                           .call = {.forward = forward.value().call,
                                    .dout = rows_of<const std::uint16_t>(args.dout),
                                    .dlse = rows_of<const float>(args.dlse),
                                    .dq = rows_of<std::uint16_t>(args.dq),
                                    .dk = rows_of<std::uint16_t>(args.dk),
                                    .dv = rows_of<std::uint16_t>(args.dv)}};
}

Status check_plan(const PrefillPlan& plan, const PrefillShape& shape, Device device) {
    if (plan.kernel.empty()) return invalid_argument("plan: got an empty one, wanted what plan_prefill returned");
    if (plan.shape.operation != shape.operation) {
        return invalid_argument(std::string("plan: made for ") + name(plan.shape.operation) + ", the call is " +
                                name(shape.operation));
    }
    const struct {
        const char* what;
        std::int64_t planned, got;
    } fields[] = {
        {"b", plan.shape.b, shape.b},
        {"total_q", plan.shape.total_q, shape.total_q},
        {"total_kv", plan.shape.total_kv, shape.total_kv},
        {"max_seqlen_q", plan.shape.max_seqlen_q, shape.max_seqlen_q},
        {"max_seqlen_kv", plan.shape.max_seqlen_kv, shape.max_seqlen_kv},
        {"h_q", plan.shape.h_q, shape.h_q},
        {"h_kv", plan.shape.h_kv, shape.h_kv},
        {"d_qk", plan.shape.d_qk, shape.d_qk},
        {"d_v", plan.shape.d_v, shape.d_v},
        {"topk", plan.shape.topk, shape.topk},
        {"causal", plan.shape.causal, shape.causal},
    };
    for (const auto& field : fields) {
        if (field.planned == field.got) continue;
        return invalid_argument(std::string("plan: made for ") + field.what + " = " + std::to_string(field.planned) +
                                ", the arguments have " + field.what + " = " + std::to_string(field.got));
    }
    if (plan.shape.dtype != shape.dtype) {
        return invalid_argument(std::string("plan: made for dtype ") + name(plan.shape.dtype) + ", the tensors have " +
                                name(shape.dtype));
    }
    if (plan.device.device != device) {
        return invalid_argument("plan: made for device " + text(plan.device.device) + ", the tensors are on " +
                                text(device));
    }
    return {};
}

Status check_host_lengths(const core::DensePrefillCall& call, const PrefillShape& shape) {
    const Status status =
        check_cumulative("cu_seqlens_q", call.cu_seqlens_q, shape.b, shape.total_q, shape.max_seqlen_q, "max_seqlen_q");
    if (!status.ok()) return status;
    return check_cumulative("cu_seqlens_kv", call.cu_seqlens_kv, shape.b, shape.total_kv, shape.max_seqlen_kv,
                            "max_seqlen_kv");
}

}  // namespace flashmla::api
