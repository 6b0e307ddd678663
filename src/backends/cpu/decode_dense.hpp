// Entry of the CPU dense-decode kernel for dispatch.
#pragma once

#include <cstddef>

#include "core/problem.hpp"
#include "flashmla/status.hpp"

namespace flashmla::backends::cpu {

// Runs to completion on plan->num_workers threads. Bits do not depend on the number of threads.
Status decode_dense(const core::DecodeCall& call);

// Workspace the planner must reserve for a shape and a number of threads; independent of lengths.
std::size_t decode_dense_workspace_bytes(const DecodeShape& shape, int num_workers);

}  // namespace flashmla::backends::cpu
