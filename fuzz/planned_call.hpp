// Calls of operations that have plans: in one call, or planned and run with a workspace of the exact size, or of a size
// and place that the input picks.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "fuzz/c_call.hpp"

namespace flashmla::fuzz {

// Spoils options now and then; one worker otherwise, since threads only cost time here.
void pick_options(Input& input, flashmla_plan_options& options);

flashmla_device_info this_cpu();

struct PlanDeleter {
    void operator()(flashmla_plan* plan) const { flashmla_plan_destroy(plan); }
};
using PlanHandle = std::unique_ptr<flashmla_plan, PlanDeleter>;

// A block of exactly the size a plan asks for, aligned as it must be.
class Workspace {
public:
    explicit Workspace(std::size_t bytes);
    ~Workspace();
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;
    std::byte* data() const { return data_; }

private:
    std::byte* data_;
};

// Args and Shape are C structs; the three functions are those of the operation.
template <class Args, class Shape>
struct PlannedFunctions {
    flashmla_status (*shape_of)(const Args*, Shape*);
    flashmla_status (*plan)(const Shape*, const flashmla_device_info*, const flashmla_plan_options*, flashmla_plan**);
    flashmla_status (*run)(const flashmla_plan*, const Args*, void*, std::size_t, flashmla_stream);
    flashmla_status (*call)(const Args*, const flashmla_plan_options*, flashmla_stream);
};

template <class Args, class Shape>
flashmla_status plan_and_run(Input& input, const Args& args, const flashmla_plan_options& options,
                             const PlannedFunctions<Args, Shape>& functions) {
    constexpr std::size_t kMostBytes = std::size_t{1} << 26;
    if (input.below(2) == 0) return functions.call(&args, &options, nullptr);
    Shape shape;
    FLASHMLA_INIT(&shape);
    flashmla_status status = functions.shape_of(&args, &shape);
    if (status != FLASHMLA_OK) return status;
    const flashmla_device_info device = this_cpu();
    flashmla_plan* made = nullptr;
    status = functions.plan(&shape, &device, &options, &made);
    const PlanHandle plan(made);
    require((status == FLASHMLA_OK) == (made != nullptr), "a plan without success or success without a plan");
    if (status != FLASHMLA_OK) return status;
    std::size_t bytes = 0;
    require(flashmla_plan_workspace_bytes(made, &bytes) == FLASHMLA_OK, "workspace size of a good plan");
    if (bytes > kMostBytes) return functions.run(made, &args, nullptr, 0, nullptr);
    const Workspace workspace(bytes);
    if (bytes > 0 && input.below(4) == 0) {
        status = functions.run(made, &args, workspace.data(), bytes - 1, nullptr);
        require(status == FLASHMLA_INVALID_ARGUMENT, "a workspace that lacks a byte was taken");
        status = functions.run(made, &args, workspace.data() + 8, bytes, nullptr);
        require(status == FLASHMLA_INVALID_ARGUMENT, "a workspace at an odd place was taken");
    }
    return functions.run(made, &args, workspace.data(), bytes, nullptr);
}

}  // namespace flashmla::fuzz
