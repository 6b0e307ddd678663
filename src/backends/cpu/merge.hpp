// Entry of the CPU merge for dispatch.
#pragma once

#include "core/merge_call.hpp"
#include "flashmla/status.hpp"

namespace flashmla::backends::cpu {

Status merge(const core::MergeCall& call);

}  // namespace flashmla::backends::cpu
