// A prefill plan: sparse, dense, and the backward of dense; each operation has its limits and its workspace.
#include <string>

#include "backends/cpu/dense_prefill.hpp"
#include "backends/cpu/dense_prefill_backward.hpp"
#include "backends/cpu/latent_attention.hpp"
#include "flashmla/prefill.hpp"
#include "plan/choose.hpp"
#include "plan/shape.hpp"
#include "plan/workspace.hpp"

namespace flashmla {
namespace {

// Bytes of the planned kernel's workspace.
Result<std::size_t> workspace_bytes(const PrefillPlan& plan) {
    switch (plan.kernel_id) {
        case KernelId::kCpuSparsePrefill:
            return backends::cpu::latent_workspace_bytes(plan.shape.d_qk, plan.shape.d_v, plan.num_workers);
        case KernelId::kCpuDensePrefill:
            return backends::cpu::dense_prefill_workspace_bytes(plan.shape, plan.num_workers);
        case KernelId::kCpuDensePrefillBackward:
            return backends::cpu::dense_prefill_backward_workspace_bytes(plan.shape, plan.num_workers);
        default: return unsupported("kernel " + plan.kernel + ": not a prefill kernel");
    }
}

}  // namespace

Result<PrefillPlan> plan_prefill(const PrefillShape& shape, const DeviceInfo& device, const PlanOptions& options) {
    if (Status status = plan::check_shape(shape); !status.ok()) return status;
    const plan::Demand demand{.operation = shape.operation, .dtype = shape.dtype, .d_qk = shape.d_qk, .d_v = shape.d_v};
    Result<plan::Choice> choice = plan::choose_kernel(demand, device, options);
    if (!choice.ok()) return choice.status();

    PrefillPlan plan;
    plan.shape = shape;
    plan.options = options;
    plan.device = device;
    plan.kernel_id = choice.value().kernel->id;
    plan.kernel = choice.value().kernel->name;
    plan.num_workers = plan::cpu_workers(device, options);
    plan.reason = "the tensors are on the CPU: " + plan::threads_text(plan.num_workers);
    plan.verdicts = choice.value().verdicts;
    for (KernelVerdict& verdict : plan.verdicts) {
        if (verdict.chosen) verdict.reason = plan.reason;
    }
    const Result<std::size_t> bytes = workspace_bytes(plan);
    if (!bytes.ok()) return bytes.status();
    plan.workspace_bytes = bytes.value();
    return plan;
}

}  // namespace flashmla
