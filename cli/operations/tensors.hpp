// The tensors of one call of an operation, on a device: random inputs, outputs with guards around them, copies on the
// host for the oracle.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "cli/device_buffers.hpp"
#include "flashmla/tensor_view.hpp"

namespace flashmla::cli {

class Tensors {
public:
    Tensors(DeviceBuffers& buffers, Device device, std::uint64_t seed)
        : buffers_(buffers), device_(device), seed_(seed) {}

    using Shape = std::initializer_list<std::int64_t>;

    // Normal values of a deviation, bf16, fp16 or fp32. Every tensor has random numbers of its own.
    TensorView normal(DType dtype, Shape shape, double deviation = 1);
    TensorView of(const std::vector<float>& values, Shape shape);
    TensorView of(const std::vector<std::int32_t>& values, Shape shape);
    // Filled with 0xFF, a NaN in every floating-point format, with 256 bytes of a pattern on either side.
    TensorView output(DType dtype, Shape shape);

    // The same tensor in host memory, as it is now; lives as long as this object.
    TensorView on_host(const TensorView& view);

    // Which output had the bytes around it changed; empty when none.
    std::string overrun();

    // Bytes of all elements of a tensor.
    static double bytes(const TensorView& view);

private:
    TensorView place(const void* data, TensorView view);

    DeviceBuffers& buffers_;
    Device device_;
    std::uint64_t seed_;
    std::uint64_t streams_ = 0;
    std::vector<TensorView> outputs_;
    std::map<const void*, std::vector<std::byte>> host_;
};

}  // namespace flashmla::cli
