// One element of a tensor of any dtype in host memory.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/float_formats.hpp"
#include "flashmla/tensor_view.hpp"

namespace flashmla::reference {

inline std::int64_t element_offset(const TensorView& view, std::initializer_list<std::int64_t> index) {
    std::int64_t offset = 0;
    std::size_t axis = 0;
    for (const std::int64_t i : index) offset += i * view.stride[axis++];
    return offset;
}

// The value of a bf16, fp16, fp32 or int32 element, so many elements from the first.
inline double element_at(const TensorView& view, std::int64_t offset) {
    switch (view.dtype) {
        case DType::kFloat32: return static_cast<const float*>(view.data)[offset];
        case DType::kInt32: return static_cast<const std::int32_t*>(view.data)[offset];
        default: return core::decode_16bit(view.dtype, static_cast<const std::uint16_t*>(view.data)[offset]);
    }
}

inline void set_element_at(const TensorView& view, std::int64_t offset, double value) {
    switch (view.dtype) {
        case DType::kFloat32: static_cast<float*>(view.data)[offset] = static_cast<float>(value); return;
        case DType::kInt32: static_cast<std::int32_t*>(view.data)[offset] = static_cast<std::int32_t>(value); return;
        default:
            static_cast<std::uint16_t*>(view.data)[offset] = core::encode_16bit(view.dtype, static_cast<float>(value));
    }
}

inline double element(const TensorView& view, std::initializer_list<std::int64_t> index) {
    return element_at(view, element_offset(view, index));
}

}  // namespace flashmla::reference
