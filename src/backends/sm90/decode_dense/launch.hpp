// Entry of the Hopper dense-decode kernel for dispatch: host code, no CUDA headers.
#pragma once

#include "core/problem.hpp"
#include "flashmla/status.hpp"

namespace flashmla::backends::sm90::decode_dense {

// Enqueues the kernel (and the merge of splits) on call.stream. Allocates and synchronises nothing.
Status launch(const core::DecodeCall& call);

}  // namespace flashmla::backends::sm90::decode_dense
