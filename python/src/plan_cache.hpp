// Plans made so far, by shape, device and options: planning costs microseconds and strings, a look-up some 50 ns.
#pragma once

#include <memory>

#include "flashmla/plan.hpp"
#include "flashmla/status.hpp"

namespace flashmla::python {

// Thread-safe. A plan stays valid for as long as the caller holds it, also when the cache is emptied meanwhile.
Result<std::shared_ptr<const DecodePlan>> cached_plan(const DecodeShape& shape, Device device,
                                                      const PlanOptions& options);

}  // namespace flashmla::python
