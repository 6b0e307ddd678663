#include "flashmla/prefill.hpp"

#include "api/check_prefill.hpp"
#include "api/run_prefill.hpp"
#include "dispatch/dispatch.hpp"

namespace flashmla {
Result<PrefillShape> dense_prefill_shape(const DensePrefillArgs& args) {
    Result<api::CheckedPrefill> checked = api::check_dense_prefill(args);
    if (!checked.ok()) return checked.status();
    return checked.value().shape;
}

Status run_dense_prefill(const PrefillPlan& plan, const DensePrefillArgs& args, void* workspace,
                         std::size_t workspace_bytes, StreamHandle stream) {
    Result<api::CheckedPrefill> checked = api::check_dense_prefill(args);
    if (!checked.ok()) return checked.status();
    core::DensePrefillCall call = checked.value().call;
    if (Status status =
            api::check_prefill_run(plan, checked.value().shape, checked.value().device, workspace, workspace_bytes);
        !status.ok()) {
        return status;
    }
    if (checked.value().device.type == DeviceType::kCpu) {
        if (Status status = api::check_host_lengths(call, checked.value().shape); !status.ok()) return status;
    }
    call.plan = &plan;
    call.workspace = workspace;
    call.stream = stream;
    return dispatch::dense_prefill(call);
}

Status dense_prefill(const DensePrefillArgs& args, const PlanOptions& options, StreamHandle stream) {
    const Result<PrefillShape> shape = dense_prefill_shape(args);
    if (!shape.ok()) return shape.status();
    return api::plan_and_run(shape.value(), args.q.device, options, stream,
                             [&](const PrefillPlan& plan, void* workspace) {
                                 return run_dense_prefill(plan, args, workspace, plan.workspace_bytes, stream);
                             });
}

}  // namespace flashmla
