#include "api/tensor_check.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "core/checked.hpp"

namespace flashmla::api {
namespace {

std::string list_text(const std::array<std::int64_t, kMaxRank>& values, int rank) {
    std::string list = "(";
    for (int axis = 0; axis < std::clamp(rank, 0, kMaxRank); ++axis) {
        list += (axis == 0 ? "" : ", ") + std::to_string(values[axis]);
    }
    return list + (rank == 1 ? ",)" : ")");
}

Status complaint(const char* tensor, const std::string& got, const std::string& wanted) {
    return invalid_argument(std::string(tensor) + ": got " + got + ", wanted " + wanted);
}

// False when an extent or packed stride does not fit.
bool pack_meaningless_strides(TensorView& view, bool has_elements) {
    std::optional<std::int64_t> packed = 1;
    for (int axis = view.rank - 1; axis >= 0; --axis) {
        if (!packed) return false;
        if (!has_elements || view.shape[axis] < 2) view.stride[axis] = *packed;
        packed = core::checked_product({view.stride[axis], std::max<std::int64_t>(view.shape[axis], 1)});
    }
    return packed.has_value();
}

// Bytes from the first element to the end of the last; nothing when they do not fit 63 bits.
std::optional<std::int64_t> span_bytes(const TensorView& view) {
    std::optional<std::int64_t> elements = 1;
    for (int axis = 0; axis < view.rank; ++axis) {
        const std::optional<std::int64_t> reach = core::checked_product({view.shape[axis] - 1, view.stride[axis]});
        if (!reach) return std::nullopt;
        elements = core::checked_sum(*elements, *reach);
        if (!elements) return std::nullopt;
    }
    return core::checked_product({*elements, static_cast<std::int64_t>(size_bytes(view.dtype))});
}

// Sufficient, and necessary for every layout that comes from slicing and permuting a packed tensor: from the smallest
// stride up, each axis steps over everything below it.
bool may_overlap(const TensorView& view) {
    std::array<int, kMaxRank> order{};  // axes with more than one element, by stride
    int axes = 0;
    for (int axis = 0; axis < view.rank; ++axis) {
        if (view.shape[axis] < 2) continue;
        int place = axes++;
        for (; place > 0 && view.stride[order[place - 1]] > view.stride[axis]; --place) order[place] = order[place - 1];
        order[place] = axis;
    }
    std::int64_t reach = 0;
    for (int i = 0; i < axes; ++i) {
        if (view.stride[order[i]] <= reach) return true;
        reach += (view.shape[order[i]] - 1) * view.stride[order[i]];
    }
    return false;
}

}  // namespace

std::string text(Device device) {
    if (device == Device{}) return "cpu";
    return (device.type == DeviceType::kCpu ? "cpu:" : "cuda:") + std::to_string(device.index);
}

std::string shape_text(const TensorView& view) { return list_text(view.shape, view.rank); }

Status check_rank(const char* tensor, const TensorView& view, const char* axes, int rank) {
    if (view.rank == rank) return {};
    return complaint(tensor, "rank " + std::to_string(view.rank), "rank " + std::to_string(rank) + ": " + axes);
}

Status check_shape(const char* tensor, const TensorView& view, std::initializer_list<Axis> axes) {
    const auto fits = [extent = view.shape.begin()](const Axis& axis) mutable {
        const std::int64_t got = *extent++;
        return axis.extent == kAnyExtent ? got >= 0 : got == axis.extent;
    };
    if (std::all_of(axes.begin(), axes.end(), fits)) return {};
    std::string wanted;
    for (const Axis& axis : axes) {
        wanted += (wanted.empty() ? "(" : ", ") + std::string(axis.name);
        if (axis.extent != kAnyExtent) wanted += " = " + std::to_string(axis.extent);
    }
    return complaint(tensor, "shape " + shape_text(view), wanted + (axes.size() == 1 ? ",)" : ")"));
}

Status check_dtype(const char* tensor, const TensorView& view, DType wanted, const char* why) {
    if (view.dtype == wanted) return {};
    return complaint(tensor, std::string("dtype ") + name(view.dtype), std::string(name(wanted)) + why);
}

Status check_device(const char* tensor, const TensorView& view, Device wanted, const char* anchor) {
    if (view.device == wanted) return {};
    return complaint(tensor, "device " + text(view.device), text(wanted) + ", where " + anchor + " is");
}

Status check_devices(std::initializer_list<NamedTensor> tensors, Device wanted, const char* anchor) {
    for (const NamedTensor& tensor : tensors) {
        if (!given(tensor.view)) continue;
        if (Status status = check_device(tensor.name, tensor.view, wanted, anchor); !status.ok()) return status;
    }
    return {};
}

Status check_memory(const char* tensor, TensorView& view, MemoryRules rules) {
    const bool has_elements =
        std::all_of(view.shape.begin(), view.shape.begin() + view.rank, [](std::int64_t extent) { return extent > 0; });
    if (!pack_meaningless_strides(view, has_elements)) {
        return complaint(tensor, "shape " + shape_text(view) + " with strides " + list_text(view.stride, view.rank),
                         "a tensor whose size fits 63 bits");
    }
    if (!has_elements) return {};
    for (int axis = 0; axis < view.rank; ++axis) {
        if (view.stride[axis] < 0) {
            return complaint(tensor, "strides " + list_text(view.stride, view.rank), "no negative stride");
        }
    }
    if (rules.last_axis == LastAxis::kContiguous && view.stride[view.rank - 1] != 1) {
        return complaint(tensor, "strides " + list_text(view.stride, view.rank), "a last axis with stride 1");
    }
    const std::optional<std::int64_t> bytes = span_bytes(view);
    if (!bytes) {
        return complaint(tensor, "shape " + shape_text(view) + " with strides " + list_text(view.stride, view.rank),
                         "a tensor whose size fits 63 bits");
    }
    if (rules.overlap == Overlap::kForbidden && may_overlap(view)) {
        return complaint(tensor, "shape " + shape_text(view) + " with strides " + list_text(view.stride, view.rank),
                         "strides that give every element a place of its own, because it is written");
    }
    if (view.data == nullptr) return complaint(tensor, "a null pointer", "memory for shape " + shape_text(view));
    if (!is_aligned(view)) {
        return complaint(tensor, "an address that is no multiple of " + std::to_string(size_bytes(view.dtype)),
                         std::string("one aligned to its dtype, ") + name(view.dtype));
    }
    return {};
}

Status check_tensors(std::initializer_list<TensorRules> tensors, Device device, const char* anchor) {
    for (const TensorRules& tensor : tensors) {
        if (!given(tensor.view)) continue;
        if (Status status = check_dtype(tensor.name, tensor.view, tensor.dtype, tensor.why); !status.ok()) {
            return status;
        }
        if (Status status = check_device(tensor.name, tensor.view, device, anchor); !status.ok()) return status;
        if (Status status = check_memory(tensor.name, tensor.view, tensor.memory); !status.ok()) return status;
    }
    return {};
}

}  // namespace flashmla::api
