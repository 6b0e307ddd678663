// What the entries of all prefill operations do around their checked call.
#pragma once

#include "api/check.hpp"
#include "api/check_prefill.hpp"
#include "dispatch/workspace_buffer.hpp"

namespace flashmla::api {

// Plan and workspace of a run.
inline Status check_prefill_run(const PrefillPlan& plan, const PrefillShape& shape, Device device,
                                const void* workspace, std::size_t workspace_bytes) {
    if (Status status = check_plan(plan, shape, device); !status.ok()) return status;
    return check_workspace(plan.workspace_bytes, workspace, workspace_bytes);
}

// For callers who bring neither: makes both, then run(plan, workspace).
template <class Run>
Status plan_and_run(const PrefillShape& shape, Device on, const PlanOptions& options, StreamHandle stream,
                    const Run& run) {
    const Result<DeviceInfo> device = query_device(on);
    if (!device.ok()) return device.status();
    const Result<PrefillPlan> plan = plan_prefill(shape, device.value(), options);
    if (!plan.ok()) return plan.status();
    dispatch::WorkspaceBuffer workspace(on, plan.value().workspace_bytes, stream);
    if (!workspace.status().ok()) return workspace.status();
    const Status status = run(plan.value(), workspace.data());
    const Status freed = workspace.release();
    return status.ok() ? freed : status;
}

}  // namespace flashmla::api
