// Dense prefill and its backward.
#include <algorithm>
#include <cstdint>
#include <string>

#include "bind.hpp"
#include "prefill_call.hpp"

namespace nb = nanobind;

namespace flashmla::python {
namespace {

// The largest difference of neighbors of cumulative lengths in host memory. Lengths of a wrong type or rank are the
// library's to refuse.
std::int64_t longest(const char* argument, const TensorView& cumulative) {
    if (cumulative.device.type != DeviceType::kCpu) {
        throw nb::value_error(
            (std::string(argument) + ": got None, wanted a number: lengths lie on the device").c_str());
    }
    if (cumulative.rank != 1 || cumulative.dtype != DType::kInt32) return 0;
    const auto* values = static_cast<const std::int32_t*>(cumulative.data);
    std::int64_t most = 0;
    for (std::int64_t i = 0; i + 1 < cumulative.shape[0]; ++i) {
        const std::int64_t step = cumulative.stride[0];
        most = std::max(most, std::int64_t{values[(i + 1) * step]} - values[i * step]);
    }
    return most;
}

std::int64_t max_seqlen(const char* argument, nb::handle given, const TensorView& cumulative) {
    return given.is_none() ? longest(argument, cumulative) : nb::cast<std::int64_t>(given);
}

// q, k, v, cu_seqlens_q, cu_seqlens_kv, out and lse of a forward call.
DensePrefillArgs dense_arguments(Arguments& kept, nb::tuple tensors, nb::tuple max_seqlens, nb::handle softmax_scale,
                                 bool causal) {
    DensePrefillArgs args;
    args.q = kept.read("q", tensors[0]);
    args.k = kept.read("k", tensors[1]);
    args.v = kept.read("v", tensors[2]);
    args.cu_seqlens_q = kept.read("cu_seqlens_q", tensors[3]);
    args.cu_seqlens_kv = kept.read("cu_seqlens_kv", tensors[4]);
    args.max_seqlen_q = max_seqlen("max_seqlen_q", max_seqlens[0], args.cu_seqlens_q);
    args.max_seqlen_kv = max_seqlen("max_seqlen_kv", max_seqlens[1], args.cu_seqlens_kv);
    set_scale(softmax_scale, args.softmax_scale, args.has_softmax_scale);
    args.causal = causal;
    return args;
}

std::size_t dense_prefill(nb::tuple tensors, nb::tuple max_seqlens, nb::handle softmax_scale, bool causal,
                          nb::tuple options, nb::handle workspace, nb::handle stream, bool execute) {
    Arguments kept;
    DensePrefillArgs args = dense_arguments(kept, tensors, max_seqlens, softmax_scale, causal);
    const auto [total_q, h_q, d_qk, unused] = args.q.shape;
    args.out = output(kept, "out", tensors[5], stand_in_for(args.q, args.q.dtype, {total_q, h_q, args.v.shape[2]}));
    args.lse = output(kept, "lse", tensors[6], stand_in_for(args.q, DType::kFloat32, {total_q, h_q}));

    const PrefillPlan plan = make_plan(value_or_raise(dense_prefill_shape(args)), args.q.device, options);
    if (execute) {
        const Workspace memory(workspace, kept.home(), plan.workspace_bytes);
        run_on_stream(kept.home(), stream, [&](StreamHandle handle) {
            return run_dense_prefill(plan, args, memory.data(), memory.size_bytes(), handle);
        });
    }
    return plan.workspace_bytes;
}

std::size_t dense_prefill_backward(nb::tuple tensors, nb::tuple gradients, nb::tuple max_seqlens,
                                   nb::handle softmax_scale, bool causal, nb::tuple options, nb::handle workspace,
                                   nb::handle stream, bool execute) {
    Arguments kept;
    DensePrefillBackwardArgs args;
    args.forward = dense_arguments(kept, tensors, max_seqlens, softmax_scale, causal);
    args.forward.out = kept.read("out", tensors[5]);
    args.forward.lse = kept.read("lse", tensors[6]);
    args.dout = kept.read("dout", gradients[0]);
    args.dlse = kept.read_if_given("dlse", gradients[1]);
    const auto like = [](const TensorView& view) {
        return stand_in_for(view, view.dtype, {view.shape[0], view.shape[1], view.shape[2]});
    };
    args.dq = output(kept, "dq", gradients[2], like(args.forward.q));
    args.dk = output(kept, "dk", gradients[3], like(args.forward.k));
    args.dv = output(kept, "dv", gradients[4], like(args.forward.v));

    PrefillShape shape = value_or_raise(dense_prefill_shape(args.forward));
    shape.operation = Operation::kDensePrefillBackward;
    const PrefillPlan plan = make_plan(shape, args.forward.q.device, options);
    if (execute) {
        const Workspace memory(workspace, kept.home(), plan.workspace_bytes);
        run_on_stream(kept.home(), stream, [&](StreamHandle handle) {
            return run_dense_prefill_backward(plan, args, memory.data(), memory.size_bytes(), handle);
        });
    }
    return plan.workspace_bytes;
}

}  // namespace

void bind_dense_prefill(nb::module_& module) {
    module.def("dense_prefill", &dense_prefill, nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(),
               nb::arg().none(), nb::arg().none(), nb::arg());
    module.def("dense_prefill_backward", &dense_prefill_backward, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
               nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg());
}

}  // namespace flashmla::python
