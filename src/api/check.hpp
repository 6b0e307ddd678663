// Words and checks: what the caller passed becomes either a DecodeCall that backends may trust, or one Status.
#pragma once

#include <cstddef>

#include "core/problem.hpp"
#include "flashmla/decode.hpp"

namespace flashmla::api {

struct CheckedDecode {
    DecodeShape shape;
    Device device;
    core::DecodeCall call;  // without plan, workspace and stream
};

// Everything that can be checked without reading tensor contents. Allocates nothing unless it refuses: on a GPU this is
// part of every launch.
Result<CheckedDecode> check_decode(const DecodeArgs& args);

// The same, quicker (0.1 us where check_decode takes 0.5) when the thread's last call had this layout, as those of a
// model's layers do: what is left to check then are addresses, because the rest is a function of the layout alone. The
// result is the thread's own, and good until its next call.
Result<const CheckedDecode*> check_decode_again(const DecodeArgs& args);

// Of arguments that passed, strides of axes with fewer than two elements replaced by packed ones.
core::DecodeCall make_decode_call(const DecodeArgs& args, const DecodeShape& shape);

// Addresses and the scale of a call that was made from arguments of the same layout.
void set_addresses(const DecodeArgs& args, const DecodeShape& shape, core::DecodeCall& call);

// Whether a plan serves these tensors: same shapes and device, addresses and strides that the planned kernel takes.
Status check_plan(const DecodePlan& plan, const CheckedDecode& checked);

// `wanted`: the plan's workspace_bytes.
Status check_workspace(std::size_t wanted, const void* workspace, std::size_t workspace_bytes);

// Lengths and page ids, for tensors in host memory. On a GPU the kernels clamp lengths instead.
Status check_host_contents(const CheckedDecode& checked);

}  // namespace flashmla::api
