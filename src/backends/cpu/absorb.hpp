// Entry of the CPU projections for dispatch.
#pragma once

#include "core/absorb_call.hpp"
#include "flashmla/status.hpp"

namespace flashmla::backends::cpu {

Status absorb(const core::AbsorbCall& call);

}  // namespace flashmla::backends::cpu
