// Entry of the CPU backward of dense prefill for dispatch.
#pragma once

#include <cstddef>

#include "core/prefill_call.hpp"
#include "flashmla/status.hpp"

namespace flashmla::backends::cpu {

// Runs to completion on plan->num_workers threads. A request's bits depend on that request alone.
Status dense_prefill_backward(const core::DensePrefillBackwardCall& call);

// Workspace the planner must reserve; independent of lengths.
std::size_t dense_prefill_backward_workspace_bytes(const PrefillShape& shape, int num_workers);

}  // namespace flashmla::backends::cpu
