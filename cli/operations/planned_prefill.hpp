// What the prefill operations share: a plan with its workspace, and where the planned kernel rounds.
#pragma once

#include "cli/operations/operation_case.hpp"
#include "reference/error_bound.hpp"

namespace flashmla::cli {

struct PlannedPrefill {
    Status status;  // why there is no plan
    PrefillPlan plan;
    void* workspace = nullptr;

    // run(plan, workspace, its bytes), when there is a plan.
    template <class Run>
    Status run(const Run& call) const {
        return status.ok() ? call(plan, workspace, plan.workspace_bytes) : status;
    }
};

PlannedPrefill plan_case(const Result<PrefillShape>& shape, const CaseDevice& device);

reference::RoundingModel rounding_model(const PrefillPlan& plan);

// What an oracle says of one row of attention, as rows to hold: its values, its LSE.
std::vector<CheckedRow> attention_rows(const reference::RowResult& exact, const reference::RowBound& bound,
                                       std::vector<double> out, double lse, const std::string& where);

}  // namespace flashmla::cli
