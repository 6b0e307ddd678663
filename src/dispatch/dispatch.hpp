// The only place where launches are ordered: a checked call goes to the kernel its plan names.
#pragma once

#include "core/absorb_call.hpp"
#include "core/merge_call.hpp"
#include "core/prefill_call.hpp"
#include "core/problem.hpp"
#include "flashmla/status.hpp"

namespace flashmla::dispatch {

Status decode(const core::DecodeCall& call);
Status sparse_prefill(const core::SparsePrefillCall& call);
Status dense_prefill(const core::DensePrefillCall& call);
Status dense_prefill_backward(const core::DensePrefillBackwardCall& call);
Status merge(core::MergeCall call);
Status absorb(core::AbsorbCall call);

}  // namespace flashmla::dispatch
