// Entries of the CPU's attention over latents for dispatch.
#pragma once

#include <cstddef>

#include "core/problem.hpp"
#include "flashmla/status.hpp"

namespace flashmla::backends::cpu {

// Run to completion on plan->num_workers threads. Bits do not depend on the number of threads.
Status decode(const core::DecodeCall& call);
Status sparse_prefill(const core::SparsePrefillCall& call);

// Workspace the planner must reserve for a shape and a number of threads; independent of lengths.
std::size_t latent_workspace_bytes(std::int64_t d_qk, std::int64_t d_v, int num_workers);

}  // namespace flashmla::backends::cpu
