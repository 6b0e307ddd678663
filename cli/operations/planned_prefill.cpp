#include "cli/operations/planned_prefill.hpp"

namespace flashmla::cli {

PlannedPrefill plan_case(const Result<PrefillShape>& shape, const CaseDevice& device) {
    if (!shape.ok()) return {.status = shape.status(), .plan = {}};
    const bool cpu = device.info.device.type == DeviceType::kCpu;
    const Result<PrefillPlan> plan = plan_prefill(
        shape.value(), device.info, {.batch_invariant = false, .kernel = {}, .num_workers = cpu ? device.threads : 0});
    if (!plan.ok()) return {.status = plan.status(), .plan = {}};
    return {.status = {}, .plan = plan.value(), .workspace = device.buffers.allocate(plan.value().workspace_bytes)};
}

reference::RoundingModel rounding_model(const PrefillPlan& plan) {
    if (plan.device.device.type == DeviceType::kCuda) return reference::matrix_unit_model(plan.shape.dtype);
    return reference::cpu_model(plan.device.arch, plan.shape.dtype);
}

std::vector<CheckedRow> attention_rows(const reference::RowResult& exact, const reference::RowBound& bound,
                                       std::vector<double> out, double lse, const std::string& where) {
    return {{exact.out, bound.out, std::move(out), where + " out"}, {{exact.lse}, {bound.lse}, {lse}, where + " lse"}};
}

}  // namespace flashmla::cli
