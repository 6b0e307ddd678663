// FLASHMLA_LOG=1: one line to stderr for every call that reaches a kernel.
#pragma once

#include <chrono>
#include <string>

#include "core/absorb_call.hpp"
#include "core/cache_calls.hpp"
#include "core/merge_call.hpp"
#include "core/prefill_call.hpp"
#include "core/problem.hpp"
#include "flashmla/status.hpp"

namespace flashmla::dispatch {

// Read from the environment once.
bool trace_enabled();

// Host time since construction: the whole call on the CPU, the enqueueing on a GPU.
class TraceClock {
public:
    double microseconds() const {
        return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_).count();
    }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// What a line says of a call: operation, kernel, device, then what the operation has of sizes and options.
std::string trace_facts(const core::DecodeCall& call);
std::string trace_facts(const core::SparsePrefillCall& call);
std::string trace_facts(const core::DensePrefillCall& call);
std::string trace_facts(const core::DensePrefillBackwardCall& call);
std::string trace_facts(const core::MergeCall& call);
std::string trace_facts(const core::AbsorbCall& call);
std::string trace_facts(const core::AppendCall& call);
std::string trace_facts(const core::GatherCall& call);
std::string trace_facts(const core::CopyPagesCall& call);
std::string trace_facts(const core::ConvertCall& call);

void trace(const std::string& facts, const Status& status, const TraceClock& clock);

// launch(call), and its line. The facts are written after the call, so that they cost it nothing.
template <class Call>
Status traced(const Call& call, Status (*launch)(const Call&)) {
    if (!trace_enabled()) return launch(call);
    const TraceClock clock;
    Status status = launch(call);
    trace(trace_facts(call), status, clock);
    return status;
}

}  // namespace flashmla::dispatch
