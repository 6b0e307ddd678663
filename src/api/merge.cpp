#include "flashmla/merge.hpp"

#include <string>

#include "api/served.hpp"
#include "api/tensor_check.hpp"
#include "core/merge_call.hpp"
#include "dispatch/dispatch.hpp"

namespace flashmla {
namespace {

std::string numbered(const char* name, std::size_t i) { return std::string(name) + "[" + std::to_string(i) + "]"; }

// Sizes of one call, from outs[0].
struct Sizes {
    bool batched = false;
    std::int64_t b = 1, s_q = 0, h_q = 0, d_v = 0;
};

Status check_out(const std::string& name, const TensorView& view, const Sizes& sizes, api::Overlap overlap) {
    const char* n = name.c_str();
    if (Status status = sizes.batched ? api::check_rank(n, view, "(b, s_q, h_q, d_v), as outs[0]", 4)
                                      : api::check_rank(n, view, "(s_q, h_q, d_v), as outs[0]", 3);
        !status.ok()) {
        return status;
    }
    const Status shape =
        sizes.batched
            ? api::check_shape(n, view, {{"b", sizes.b}, {"s_q", sizes.s_q}, {"h_q", sizes.h_q}, {"d_v", sizes.d_v}})
            : api::check_shape(n, view, {{"s_q", sizes.s_q}, {"h_q", sizes.h_q}, {"d_v", sizes.d_v}});
    if (!shape.ok()) return shape;
    if (view.dtype != DType::kBFloat16 && view.dtype != DType::kFloat16 && view.dtype != DType::kFloat32) {
        return invalid_argument(name + ": got dtype " + flashmla::name(view.dtype) +
                                ", wanted bfloat16, float16 or float32");
    }
    TensorView checked = view;
    return api::check_memory(n, checked, {api::LastAxis::kContiguous, overlap});
}

Status check_lse(const std::string& name, const TensorView& view, const Sizes& sizes, api::Overlap overlap) {
    const char* n = name.c_str();
    if (Status status = sizes.batched ? api::check_rank(n, view, "(b, h_q, s_q), beside outs of rank 4", 3)
                                      : api::check_rank(n, view, "(s_q, h_q), beside outs of rank 3", 2);
        !status.ok()) {
        return status;
    }
    const Status shape = sizes.batched
                             ? api::check_shape(n, view, {{"b", sizes.b}, {"h_q", sizes.h_q}, {"s_q", sizes.s_q}})
                             : api::check_shape(n, view, {{"s_q", sizes.s_q}, {"h_q", sizes.h_q}});
    if (!shape.ok()) return shape;
    if (Status status = api::check_dtype(n, view, DType::kFloat32, ""); !status.ok()) return status;
    TensorView checked = view;
    return api::check_memory(n, checked, {api::LastAxis::kAnyStride, overlap});
}

Status check_merge(const MergeArgs& args, Sizes& sizes) {
    if (args.outs.empty()) return invalid_argument("outs: got none, wanted at least one");
    if (args.lses.size() != args.outs.size()) {
        return invalid_argument("lses: got " + std::to_string(args.lses.size()) + ", wanted as many as outs, " +
                                std::to_string(args.outs.size()));
    }
    const TensorView& first = args.outs[0];
    if (first.rank != 3 && first.rank != 4) {
        return invalid_argument("outs[0]: got rank " + std::to_string(first.rank) +
                                ", wanted rank 4: (b, s_q, h_q, d_v), or rank 3: (s_q, h_q, d_v)");
    }
    sizes.batched = first.rank == 4;
    const std::size_t token_axis = sizes.batched ? 1 : 0;
    sizes.b = sizes.batched ? first.shape[0] : 1;
    sizes.s_q = first.shape[token_axis];
    sizes.h_q = first.shape[token_axis + 1];
    sizes.d_v = first.shape[token_axis + 2];
    for (const std::int64_t size : {sizes.b, sizes.s_q, sizes.h_q, sizes.d_v}) {
        if (size < 0) return invalid_argument("outs[0]: got shape " + api::shape_text(first) + ", wanted sizes >= 0");
    }
    const auto on_one_device = [&](const std::string& name, const TensorView& view) {
        return api::check_device(name.c_str(), view, first.device, "outs[0]");
    };
    for (std::size_t i = 0; i < args.outs.size(); ++i) {
        const std::string out = numbered("outs", i);
        const std::string lse = numbered("lses", i);
        if (Status status = check_out(out, args.outs[i], sizes, api::Overlap::kAllowed); !status.ok()) return status;
        if (Status status = check_lse(lse, args.lses[i], sizes, api::Overlap::kAllowed); !status.ok()) return status;
        if (Status status = on_one_device(out, args.outs[i]); !status.ok()) return status;
        if (Status status = on_one_device(lse, args.lses[i]); !status.ok()) return status;
    }
    if (Status status = check_out("out", args.out, sizes, api::Overlap::kForbidden); !status.ok()) return status;
    if (Status status = check_lse("lse", args.lse, sizes, api::Overlap::kForbidden); !status.ok()) return status;
    if (Status status = on_one_device("out", args.out); !status.ok()) return status;
    if (Status status = on_one_device("lse", args.lse); !status.ok()) return status;
    return api::check_served(Operation::kMerge, first.device);
}

}  // namespace

Status merge(const MergeArgs& args, StreamHandle) {
    Sizes sizes;
    if (Status status = check_merge(args, sizes); !status.ok()) return status;
    return dispatch::merge({.outs = args.outs,
                            .lses = args.lses,
                            .out = args.out,
                            .lse = args.lse,
                            .b = sizes.b,
                            .s_q = sizes.s_q,
                            .h_q = sizes.h_q,
                            .d_v = sizes.d_v});
}

}  // namespace flashmla
