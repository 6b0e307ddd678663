// Checks of one tensor: each names the tensor, what it got and what it accepts.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "flashmla/status.hpp"
#include "flashmla/tensor_view.hpp"

namespace flashmla::api {

std::string text(Device device);
std::string shape_text(const TensorView& view);

// The first complaint of a list; every check is cheap, so all of them run.
inline Status first_error(std::initializer_list<Status> checks) {
    for (const Status& status : checks) {
        if (!status.ok()) return status;
    }
    return {};
}

// A tensor of rank 0 is one that the caller did not give.
inline bool given(const TensorView& view) { return view.rank != 0; }

// To its dtype.
inline bool is_aligned(const TensorView& view) {
    return reinterpret_cast<std::uintptr_t>(view.data) % size_bytes(view.dtype) == 0;
}

inline constexpr std::int64_t kAnyExtent = -1;

struct Axis {
    const char* name;
    std::int64_t extent = kAnyExtent;  // kAnyExtent: whatever the tensor has, from 0 up
};

Status check_rank(const char* tensor, const TensorView& view, const char* axes, int rank);
Status check_shape(const char* tensor, const TensorView& view, std::initializer_list<Axis> axes);
Status check_dtype(const char* tensor, const TensorView& view, DType wanted, const char* why);
// `anchor`: the argument whose device it must share.
Status check_device(const char* tensor, const TensorView& view, Device wanted, const char* anchor = "q");

struct NamedTensor {
    const char* name;
    const TensorView& view;
};

// The same of each tensor that was given.
Status check_devices(std::initializer_list<NamedTensor> tensors, Device wanted, const char* anchor);

enum class Overlap { kAllowed, kForbidden };  // forbidden where elements are written
enum class LastAxis { kContiguous, kAnyStride };

struct MemoryRules {
    LastAxis last_axis = LastAxis::kContiguous;
    Overlap overlap = Overlap::kAllowed;
};

// Strides, extent in bytes, address. Strides of axes with fewer than two elements have no meaning and come in all
// values: they are replaced by packed ones first, so `view` is in and out. Rank, shape and dtype must have been
// checked.
Status check_memory(const char* tensor, TensorView& view, MemoryRules rules);

// What one tensor of a call must be.
struct TensorRules {
    const char* name;
    TensorView& view;  // its strides: see check_memory
    DType dtype;
    const char* why = "";  // follows the wanted dtype in a complaint
    MemoryRules memory{};
};

inline constexpr const char* kAsQ = ", q's dtype";

// Rules for results: written in whole rows, or value by value.
inline constexpr MemoryRules kWrittenRows{LastAxis::kContiguous, Overlap::kForbidden};
inline constexpr MemoryRules kWrittenValues{LastAxis::kAnyStride, Overlap::kForbidden};

// Dtype, device and memory of each tensor that was given, in this order.
Status check_tensors(std::initializer_list<TensorRules> tensors, Device device, const char* anchor = "q");

}  // namespace flashmla::api
