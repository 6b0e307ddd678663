#include "cli/operations/tensors.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "cli/normal_codes.hpp"

namespace flashmla::cli {
namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr std::byte kGuard{0xa5};

std::int64_t elements_of(const TensorView& view) {
    return std::accumulate(view.shape.begin(), view.shape.begin() + view.rank, std::int64_t{1}, std::multiplies<>());
}

std::size_t bytes_of(const TensorView& view) {
    return static_cast<std::size_t>(elements_of(view)) * size_bytes(view.dtype);
}

}  // namespace

TensorView Tensors::place(const void* data, TensorView view) {
    view.data = buffers_.allocate(bytes_of(view));
    buffers_.copy_to(view.data, data, bytes_of(view));
    return view;
}

TensorView Tensors::normal(DType dtype, Shape shape, double deviation) {
    const TensorView view = contiguous_view(nullptr, dtype, shape, device_);
    const auto rounded = static_cast<std::size_t>((elements_of(view) + 3) / 4 * 4);
    const std::uint64_t stream = core::random_bits(seed_, streams_++);
    // fp32 values are bf16 ones widened.
    const bool wide = dtype == DType::kFloat32;
    std::vector<std::uint16_t> codes(rounded);
    NormalCodes(wide ? DType::kBFloat16 : dtype, deviation).fill(stream, 0, rounded, codes.data());
    if (!wide) return place(codes.data(), view);
    std::vector<float> values(rounded);
    std::transform(codes.begin(), codes.end(), values.begin(), core::bf16_to_float);
    return place(values.data(), view);
}

TensorView Tensors::of(const std::vector<float>& values, Shape shape) {
    return place(values.data(), contiguous_view(nullptr, DType::kFloat32, shape, device_));
}

TensorView Tensors::of(const std::vector<std::int32_t>& values, Shape shape) {
    return place(values.data(), contiguous_view(nullptr, DType::kInt32, shape, device_));
}

TensorView Tensors::output(DType dtype, Shape shape) {
    TensorView view = contiguous_view(nullptr, dtype, shape, device_);
    const std::size_t bytes = bytes_of(view);
    std::vector<std::byte> initial(bytes + 2 * kGuardBytes, kGuard);
    std::fill_n(initial.begin() + kGuardBytes, bytes, std::byte{0xff});
    auto* memory = static_cast<std::byte*>(buffers_.allocate(initial.size()));
    buffers_.copy_to(memory, initial.data(), initial.size());
    view.data = memory + kGuardBytes;
    outputs_.push_back(view);
    return view;
}

TensorView Tensors::on_host(const TensorView& view) {
    std::vector<std::byte>& copy = host_[view.data];
    copy.resize(bytes_of(view) + 1);  // never empty, so that the view's data are never null
    buffers_.copy_back(copy.data(), view.data, bytes_of(view));
    TensorView made = view;
    made.data = copy.data();
    made.device = {DeviceType::kCpu, 0};
    return made;
}

std::string Tensors::overrun() {
    std::vector<std::byte> guard(kGuardBytes);
    for (const TensorView& view : outputs_) {
        const auto* memory = static_cast<const std::byte*>(view.data);
        for (const std::byte* at : {memory - kGuardBytes, memory + bytes_of(view)}) {
            buffers_.copy_back(guard.data(), at, kGuardBytes);
            if (std::any_of(guard.begin(), guard.end(), [](std::byte b) { return b != kGuard; })) {
                return std::string("bytes ") + (at < memory ? "before" : "after") + " an output were written";
            }
        }
    }
    return {};
}

double Tensors::bytes(const TensorView& view) { return static_cast<double>(bytes_of(view)); }

}  // namespace flashmla::cli
