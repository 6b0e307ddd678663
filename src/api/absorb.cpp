#include "flashmla/absorb.hpp"

#include <string>

#include "api/served.hpp"
#include "api/tensor_check.hpp"
#include "core/absorb_call.hpp"
#include "dispatch/dispatch.hpp"

namespace flashmla {
namespace {

// `transposed`: from the rank back to the head width.
Result<core::AbsorbCall> check_absorb(const AbsorbArgs& given, bool transposed) {
    AbsorbArgs args = given;  // strides that mean nothing get packed values on the way
    const char* x_axes = transposed ? "(n, h, kv_lora_rank)" : "(n, h, head_dim)";
    const char* out_axes = transposed ? "(n, h, head_dim)" : "(n, h, kv_lora_rank)";
    if (Status status = api::check_rank("x", args.x, x_axes, 3); !status.ok()) return status;
    if (Status status = api::check_rank("weight", args.weight, "(h, head_dim, kv_lora_rank)", 3); !status.ok()) {
        return status;
    }
    if (Status status = api::check_rank("out", args.out, out_axes, 3); !status.ok()) return status;

    const std::int64_t n = args.x.shape[0];
    const std::int64_t h = args.x.shape[1];
    const std::int64_t head_dim = args.weight.shape[1];
    const std::int64_t rank = args.weight.shape[2];
    if (Status status = api::check_shape("weight", args.weight, {{"h", h}, {"head_dim"}, {"kv_lora_rank"}});
        !status.ok()) {
        return status;
    }
    const api::Axis width{"head_dim", head_dim};
    const api::Axis latent{"kv_lora_rank", rank};
    if (Status status = api::check_shape("x", args.x, {{"n"}, {"h"}, transposed ? latent : width}); !status.ok()) {
        return status;
    }
    if (Status status = api::check_shape("out", args.out, {{"n", n}, {"h", h}, transposed ? width : latent});
        !status.ok()) {
        return status;
    }
    if (args.x.dtype != DType::kBFloat16 && args.x.dtype != DType::kFloat16 && args.x.dtype != DType::kFloat32) {
        return invalid_argument(std::string("x: got dtype ") + name(args.x.dtype) +
                                ", wanted bfloat16, float16 or float32");
    }
    const DType dtype = args.x.dtype;
    const char* as_x = ", x's dtype";
    if (Status status = api::check_tensors({{"x", args.x, dtype},
                                            {"weight", args.weight, dtype, as_x},
                                            {"out", args.out, dtype, as_x, api::kWrittenRows}},
                                           args.x.device, "x");
        !status.ok()) {
        return status;
    }
    if (Status status = api::check_served(Operation::kAbsorb, args.x.device); !status.ok()) return status;
    return core::AbsorbCall{.dtype = args.x.dtype,
                            .n = n,
                            .h = h,
                            .depth = transposed ? rank : head_dim,
                            .columns = transposed ? head_dim : rank,
                            .transposed = transposed,
                            .x = args.x.data,
                            .x_row = args.x.stride[0],
                            .x_head = args.x.stride[1],
                            .weight = args.weight.data,
                            .weight_head = args.weight.stride[0],
                            .weight_row = args.weight.stride[1],
                            .out = args.out.data,
                            .out_row = args.out.stride[0],
                            .out_head = args.out.stride[1]};
}

Status run(const AbsorbArgs& args, bool transposed) {
    const Result<core::AbsorbCall> call = check_absorb(args, transposed);
    return call.ok() ? dispatch::absorb(call.value()) : call.status();
}

}  // namespace

Status absorb_query(const AbsorbArgs& args, StreamHandle) { return run(args, false); }

Status project_output(const AbsorbArgs& args, StreamHandle) { return run(args, true); }

}  // namespace flashmla
