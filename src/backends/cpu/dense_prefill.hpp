// Entry of the CPU dense-prefill kernel for dispatch.
#pragma once

#include <cstddef>

#include "core/prefill_call.hpp"
#include "flashmla/status.hpp"

namespace flashmla::backends::cpu {

struct TileKernels;

// Runs to completion on plan->num_workers threads. A request's bits depend on that request alone.
Status dense_prefill(const core::DensePrefillCall& call);

// The same with the functions of one instruction set.
void dense_prefill_on(const core::DensePrefillCall& call, const TileKernels& kernels);

// Workspace the planner must reserve; independent of lengths.
std::size_t dense_prefill_workspace_bytes(const PrefillShape& shape, int num_workers);

}  // namespace flashmla::backends::cpu
