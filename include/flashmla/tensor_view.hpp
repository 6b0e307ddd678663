// A borrowed tensor: pointer, element type, shape and strides. Owns nothing; the caller keeps the memory alive.
#pragma once

#include <array>
#include <initializer_list>

#include "flashmla/types.hpp"

namespace flashmla {

inline constexpr int kMaxRank = 4;

struct TensorView {
    void* data = nullptr;  // may be null only when the tensor has no elements; inputs are never written
    DType dtype = DType::kFloat32;
    Device device{};
    int rank = 0;
    std::array<std::int64_t, kMaxRank> shape{};   // elements
    std::array<std::int64_t, kMaxRank> stride{};  // elements, not bytes
};

// A view of row-major contiguous memory.
inline TensorView contiguous_view(const void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                                  Device device = {}) {
    TensorView view{.data = const_cast<void*>(data),
                    .dtype = dtype,
                    .device = device,
                    .rank = static_cast<int>(shape.size()),
                    .shape = {},
                    .stride = {}};
    int axis = 0;
    for (std::int64_t extent : shape) view.shape[axis++] = extent;
    std::int64_t step = 1;
    for (axis = view.rank - 1; axis >= 0; --axis) {
        view.stride[axis] = step;
        step *= view.shape[axis];
    }
    return view;
}

}  // namespace flashmla
