// The plan handle and the options a plan is made with.
#pragma once

#include <variant>

#include "flashmla/c/plan.h"
#include "flashmla/plan.hpp"
#include "flashmla/prefill.hpp"
#include "flashmla/status.hpp"

struct flashmla_plan {
    std::variant<flashmla::DecodePlan, flashmla::PrefillPlan> held;
};

namespace flashmla::capi {

// Null gives the defaults.
Status read_options(const flashmla_plan_options* given, PlanOptions& options);

flashmla::Operation operation_of(const flashmla_plan& plan);

Status wrong_plan(const flashmla_plan* handle, const char* wanted);

// The plan of a kind, or what is wrong with the handle.
template <class Plan>
Status held_plan(const flashmla_plan* handle, const char* wanted, const Plan*& plan) {
    plan = handle == nullptr ? nullptr : std::get_if<Plan>(&handle->held);
    return plan == nullptr ? wrong_plan(handle, wanted) : Status{};
}

}  // namespace flashmla::capi
