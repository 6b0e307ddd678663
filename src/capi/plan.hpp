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

// The plan of a kind; null when the handle holds none, and then wrong_plan says what it holds.
template <class Plan>
const Plan* held_plan(const flashmla_plan* handle) {
    return handle == nullptr ? nullptr : std::get_if<Plan>(&handle->held);
}
Status wrong_plan(const flashmla_plan* handle, const char* wanted);

}  // namespace flashmla::capi
