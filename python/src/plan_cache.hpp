// Plans made so far, by shape, device and options: planning costs microseconds and strings, a look-up some 50 ns.
#pragma once

#include <memory>

#include "flashmla/decode.hpp"
#include "flashmla/plan.hpp"
#include "flashmla/status.hpp"

namespace flashmla::python {

// The plan for a call. A known one comes back without checking args, which run_decode does anyway; a new one checks
// them first. Thread-safe. A plan stays valid for as long as the caller holds it, also when the cache is emptied
// meanwhile.
Result<std::shared_ptr<const DecodePlan>> cached_plan(const DecodeArgs& args, const PlanOptions& options);

}  // namespace flashmla::python
