#include "api/check_prefill.hpp"
#include "api/run_prefill.hpp"
#include "dispatch/dispatch.hpp"
#include "flashmla/prefill.hpp"

namespace flashmla {

Status run_dense_prefill_backward(const PrefillPlan& plan, const DensePrefillBackwardArgs& args, void* workspace,
                                  std::size_t workspace_bytes, StreamHandle stream) {
    Result<api::CheckedBackward> checked = api::check_dense_prefill_backward(args);
    if (!checked.ok()) return checked.status();
    core::DensePrefillBackwardCall call = checked.value().call;
    if (Status status =
            api::check_prefill_run(plan, checked.value().shape, checked.value().device, workspace, workspace_bytes);
        !status.ok()) {
        return status;
    }
    if (checked.value().device.type == DeviceType::kCpu) {
        const Status status = api::check_host_lengths(call.forward, checked.value().shape);
        if (!status.ok()) return status;
    }
    call.forward.plan = &plan;
    call.forward.workspace = workspace;
    call.forward.stream = stream;
    return dispatch::dense_prefill_backward(call);
}

Status dense_prefill_backward(const DensePrefillBackwardArgs& args, const PlanOptions& options, StreamHandle stream) {
    const Result<api::CheckedBackward> checked = api::check_dense_prefill_backward(args);
    if (!checked.ok()) return checked.status();
    return api::plan_and_run(checked.value().shape, checked.value().device, options, stream,
                             [&](const PrefillPlan& plan, void* workspace) {
                                 return run_dense_prefill_backward(plan, args, workspace, plan.workspace_bytes, stream);
                             });
}

}  // namespace flashmla
