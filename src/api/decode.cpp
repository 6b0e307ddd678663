#include "flashmla/decode.hpp"

#include "api/check.hpp"
#include "dispatch/dispatch.hpp"
#include "dispatch/workspace_buffer.hpp"

namespace flashmla {

Result<DecodeShape> decode_shape(const DecodeArgs& args) {
    Result<api::CheckedDecode> checked = api::check_decode(args);
    if (!checked.ok()) return checked.status();
    return checked.value().shape;
}

Status run_decode(const DecodePlan& plan, const DecodeArgs& args, void* workspace, std::size_t workspace_bytes,
                  StreamHandle stream) {
    const Result<const api::CheckedDecode*> result = api::check_decode_again(args);
    if (!result.ok()) return result.status();
    const api::CheckedDecode& checked = *result.value();
    if (Status status = api::check_plan(plan, checked); !status.ok()) return status;
    if (Status status = api::check_workspace(plan.workspace_bytes, workspace, workspace_bytes); !status.ok())
        return status;
    if (checked.device.type == DeviceType::kCpu) {
        if (Status status = api::check_host_contents(checked); !status.ok()) return status;
    }
    core::DecodeCall call = checked.call;
    call.plan = &plan;
    call.workspace = workspace;
    call.stream = stream;
    return dispatch::decode(call);
}

Status decode(const DecodeArgs& args, const PlanOptions& options, StreamHandle stream) {
    Result<DecodeShape> shape = decode_shape(args);
    if (!shape.ok()) return shape.status();
    Result<DeviceInfo> device = query_device(args.q.device);
    if (!device.ok()) return device.status();
    Result<DecodePlan> plan = plan_decode(shape.value(), device.value(), options);
    if (!plan.ok()) return plan.status();
    dispatch::WorkspaceBuffer workspace(args.q.device, plan.value().workspace_bytes, stream);
    if (!workspace.status().ok()) return workspace.status();
    const Status status = run_decode(plan.value(), args, workspace.data(), plan.value().workspace_bytes, stream);
    const Status freed = workspace.release();
    return status.ok() ? freed : status;
}

}  // namespace flashmla
