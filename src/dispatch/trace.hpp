// FLASHMLA_LOG=1: one line to stderr for every call that reaches a kernel.
#pragma once

#include <chrono>

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

void trace(const core::DecodeCall& call, const Status& status, const TraceClock& clock);

}  // namespace flashmla::dispatch
