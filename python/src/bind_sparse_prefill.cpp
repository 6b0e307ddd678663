// Sparse prefill.
#include <cstdint>
#include <string>

#include "bind.hpp"
#include "prefill_call.hpp"

namespace nb = nanobind;

namespace flashmla::python {
namespace {

std::size_t sparse_prefill(nb::tuple tensors, std::int64_t d_v, nb::handle softmax_scale, nb::tuple options,
                           nb::handle workspace, nb::handle stream, bool execute) {
    Arguments kept;
    SparsePrefillArgs args;
    args.q = kept.read("q", tensors[0]);
    args.kv = kept.read("kv", tensors[1]);
    args.indices = kept.read("indices", tensors[2]);
    args.topk_length = kept.read_if_given("topk_length", tensors[3]);
    args.attn_sink = kept.read_if_given("attn_sink", tensors[4]);
    const auto [s_q, h_q, d_qk, unused] = args.q.shape;
    const TensorView rows = stand_in_for(args.q, DType::kFloat32, {s_q, h_q});
    args.out = output(kept, "out", tensors[5], stand_in_for(args.q, args.q.dtype, {s_q, h_q, d_v}));
    check_width(args.out, 3, d_v);
    args.max_logits = output(kept, "max_logits", tensors[6], rows);
    args.lse = output(kept, "lse", tensors[7], rows);
    set_scale(softmax_scale, args.softmax_scale, args.has_softmax_scale);

    const PrefillPlan plan = make_plan(value_or_raise(sparse_prefill_shape(args)), args.q.device, options);
    if (execute) {
        const Workspace memory(workspace, kept.home(), plan.workspace_bytes);
        run_on_stream(kept.home(), stream, [&](StreamHandle handle) {
            return run_sparse_prefill(plan, args, memory.data(), memory.size_bytes(), handle);
        });
    }
    return plan.workspace_bytes;
}

}  // namespace

void bind_sparse_prefill(nb::module_& module) {
    module.def("sparse_prefill", &sparse_prefill, nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg().none(),
               nb::arg().none(), nb::arg());
}

}  // namespace flashmla::python
