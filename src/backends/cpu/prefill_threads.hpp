// Threads that a prefill call is worth.
#pragma once

#include "backends/cpu/parallel.hpp"
#include "core/prefill_call.hpp"

namespace flashmla::backends::cpu {

// At most the plan's; `macs_per_pair`: multiply-adds that a (query row, key) pair costs.
inline int prefill_threads(const core::DensePrefillCall& call, std::int64_t macs_per_pair) {
    // Starting a thread costs about as much as this many multiply-adds.
    constexpr double kMacsPerThread = 1 << 22;
    const PrefillShape& shape = call.plan->shape;
    const int limit = core::min_of(core::max_of(call.plan->num_workers, 1), kMaxParallel);
    double macs = 0;
    for (std::int64_t i = 0; i < shape.b && macs < limit * kMacsPerThread; ++i) {
        macs += static_cast<double>(call.length_q(i)) * (call.length_kv(i) + 1.0) *
                static_cast<double>(shape.h_q * macs_per_pair);
    }
    return core::max_of(1, core::min_of(limit, static_cast<int>(core::min_of(macs / kMacsPerThread, 1e6))));
}

}  // namespace flashmla::backends::cpu
