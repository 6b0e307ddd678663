// What decode and the three prefill operations share: a plan handle is made from a shape, and arguments run with it or
// without.
#pragma once

#include <utility>

#include "capi/device.hpp"
#include "capi/guard.hpp"
#include "capi/plan.hpp"
#include "capi/structs.hpp"

namespace flashmla::capi {

template <class Plan, class Args, class CArgs>
struct PlannedOperation {
    const char* planner;  // "decode": flashmla_plan_decode makes its plans
    Status (*read_args)(const CArgs*, Args&);
    Status (*run_planned)(const Plan&, const Args&, void*, std::size_t, StreamHandle);
    Status (*plan_and_run)(const Args&, const PlanOptions&, StreamHandle);

    flashmla_status run(const flashmla_plan* handle, const CArgs* given, void* workspace, std::size_t workspace_bytes,
                        StreamHandle stream) const {
        return guarded([&]() -> Status {
            const auto* plan = held_plan<Plan>(handle);
            if (plan == nullptr) return wrong_plan(handle, planner);
            Args args;
            if (Status status = read_args(given, args); !status.ok()) return status;
            return run_planned(*plan, args, workspace, workspace_bytes, stream);
        });
    }

    flashmla_status call(const CArgs* given, const flashmla_plan_options* given_options, StreamHandle stream) const {
        return guarded([&]() -> Status {
            Args args;
            PlanOptions options;
            if (Status status = read_args(given, args); !status.ok()) return status;
            if (Status status = read_options(given_options, options); !status.ok()) return status;
            return plan_and_run(args, options, stream);
        });
    }
};

// What the caller hands over to get a plan.
template <class CShape>
struct PlanRequest {
    const CShape* shape;
    const flashmla_device_info* device;
    const flashmla_plan_options* options;
    flashmla_plan** handle;
};

template <class Shape, class Plan, class CShape>
flashmla_status make_plan(const PlanRequest<CShape>& given, Status (*read_shape)(const CShape*, Shape&),
                          Result<Plan> (*planner)(const Shape&, const DeviceInfo&, const PlanOptions&)) {
    return guarded([&]() -> Status {
        if (given.handle == nullptr) return null_pointer("plan", "somewhere to write the plan to");
        *given.handle = nullptr;
        Shape shape;
        DeviceInfo device;
        PlanOptions options;
        if (Status status = read_shape(given.shape, shape); !status.ok()) return status;
        if (Status status = read_device_info(given.device, device); !status.ok()) return status;
        if (Status status = read_options(given.options, options); !status.ok()) return status;
        Result<Plan> plan = planner(shape, device, options);
        if (!plan.ok()) return plan.status();
        *given.handle = new flashmla_plan{std::move(plan).value()};
        return {};
    });
}

// The shape that arguments describe, for the caller's struct.
template <class Args, class Shape, class CArgs, class CShape>
flashmla_status shape_of(const CArgs* given, CShape* out, Status (*read_args)(const CArgs*, Args&),
                         Result<Shape> (*shape)(const Args&), CShape (*c_shape)(const Shape&)) {
    return guarded([&]() -> Status {
        Args args;
        if (Status status = read_args(given, args); !status.ok()) return status;
        if (Status status = check_struct("shape", out); !status.ok()) return status;
        const Result<Shape> found = shape(args);
        if (found.ok()) write_struct(c_shape(found.value()), out);
        return found.status();
    });
}

}  // namespace flashmla::capi
