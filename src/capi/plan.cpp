#include "capi/plan.hpp"

#include <string>

#include "capi/guard.hpp"
#include "capi/reader.hpp"

namespace flashmla::capi {

Operation operation_of(const flashmla_plan& plan) {
    const auto* prefill = std::get_if<PrefillPlan>(&plan.held);
    return prefill == nullptr ? Operation::kDecode : prefill->shape.operation;
}

Status wrong_plan(const flashmla_plan* handle, const char* wanted) {
    if (handle == nullptr) return null_pointer("plan", std::string("one of flashmla_plan_") + wanted);
    return invalid_argument(std::string("plan: made for ") + name(operation_of(*handle)) +
                            ", wanted one of flashmla_plan_" + wanted);
}

Status read_options(const flashmla_plan_options* given, PlanOptions& options) {
    options = {};
    if (given == nullptr) return {};
    Reader outer;
    const auto c = outer.structure("options", given);
    if (!outer.status().ok()) return outer.status();
    Reader read("options.");
    read.flag("batch_invariant", c.batch_invariant, options.batch_invariant);
    read.reserved("reserved", c.reserved);
    if (c.kernel != nullptr) options.kernel = c.kernel;
    options.num_workers = c.num_workers;
    return read.status();
}

namespace {

flashmla_plan_info info_of(const flashmla_plan& handle) {
    return std::visit(
        [&handle](const auto& plan) {
            flashmla_plan_info info{};
            info.operation = to_c(kOperations, operation_of(handle));
            info.num_workers = plan.num_workers;
            info.workspace_bytes = plan.workspace_bytes;
            info.kernel = plan.kernel.c_str();
            info.reason = plan.reason.c_str();
            return info;
        },
        handle.held);
}

}  // namespace

extern "C" {

flashmla_status flashmla_query_plan(const flashmla_plan* plan, flashmla_plan_info* info) {
    return guarded([&] {
        Reader read;
        read.pointer("plan", plan, "a plan");
        read.output("info", info);
        if (read.status().ok()) write_struct(info_of(*plan), info);
        return read.status();
    });
}

flashmla_status flashmla_plan_workspace_bytes(const flashmla_plan* plan, size_t* bytes) {
    return guarded([&] {
        Reader read;
        read.pointer("plan", plan, "a plan");
        read.pointer("bytes", bytes, "somewhere to write to");
        if (read.status().ok()) *bytes = info_of(*plan).workspace_bytes;
        return read.status();
    });
}

void flashmla_plan_destroy(flashmla_plan* plan) { delete plan; }

}  // extern "C"

}  // namespace flashmla::capi
