// Dense prefill and its backward: what the caller passed becomes a checked call or one Status.
#pragma once

#include "core/prefill_call.hpp"
#include "flashmla/prefill.hpp"

namespace flashmla::api {

struct CheckedPrefill {
    PrefillShape shape;
    Device device;
    core::DensePrefillCall call;  // without plan, workspace and stream
};

// Everything that can be checked without reading tensor contents.
Result<CheckedPrefill> check_dense_prefill(const DensePrefillArgs& args);

struct CheckedBackward {
    PrefillShape shape;
    Device device;
    core::DensePrefillBackwardCall call;
};

Result<CheckedBackward> check_dense_prefill_backward(const DensePrefillBackwardArgs& args);

// Whether a plan serves the shape on the device.
Status check_plan(const PrefillPlan& plan, const PrefillShape& shape, Device device);

// Cumulative lengths, for tensors in host memory.
Status check_host_lengths(const core::DensePrefillCall& call, const PrefillShape& shape);

}  // namespace flashmla::api
