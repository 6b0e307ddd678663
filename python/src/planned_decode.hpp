// The second half of every decode call: plan, scratch memory, run.
#pragma once

#include "call.hpp"
#include "flashmla/decode.hpp"
#include "plan_cache.hpp"

namespace flashmla::python {

// workspace and stream as Workspace and run_on_stream take them.
inline void run_planned(const Arguments& kept, const DecodeArgs& args, const PlanOptions& options,
                        nanobind::handle workspace, nanobind::handle stream) {
    const auto plan = value_or_raise(cached_plan(args, options));
    const Workspace memory(workspace, kept.home(), plan->workspace_bytes);
    run_on_stream(kept.home(), stream, [&](StreamHandle handle) {
        return run_decode(*plan, args, memory.data(), memory.size_bytes(), handle);
    });
}

}  // namespace flashmla::python
