#include "support/guarded_tensor.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "reference/element.hpp"

namespace flashmla::testing_support {
namespace {

constexpr std::int64_t kZone = 64;  // elements before the first and after the last

// Bytes of one element that is not to be read: NaN in every float format, 0x7fedfeed as an integer.
void poison_at(std::byte* element, std::size_t size) {
    constexpr unsigned char kPattern[8] = {0xed, 0xfe, 0xed, 0x7f, 0xed, 0xfe, 0xed, 0x7f};
    std::memcpy(element, size == 2 ? kPattern + 2 : kPattern, size);
}

}  // namespace

GuardedTensor::GuardedTensor(DType dtype, std::vector<std::int64_t> axes, std::int64_t gap, std::vector<int> order) {
    const auto rank = static_cast<int>(axes.size());
    if (order.empty()) {
        order.resize(axes.size());
        std::iota(order.begin(), order.end(), 0);
    }
    view_.dtype = dtype;
    view_.rank = rank;
    std::int64_t step = 1;
    for (int i = rank - 1; i >= 0; --i) {
        const auto axis = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
        view_.shape[axis] = axes[axis];
        view_.stride[axis] = step;
        step = step * std::max<std::int64_t>(axes[axis], 1) + gap;
    }
    offsets_ = {0};
    for (int axis = 0; axis < rank; ++axis) {
        std::vector<std::int64_t> longer;
        for (const std::int64_t offset : offsets_) {
            for (std::int64_t i = 0; i < axes[static_cast<std::size_t>(axis)]; ++i) {
                longer.push_back(offset + i * view_.stride[static_cast<std::size_t>(axis)]);
            }
        }
        offsets_ = std::move(longer);
    }
    const std::size_t size = size_bytes(dtype);
    buffer_.resize(static_cast<std::size_t>(step + 2 * kZone) * size);
    view_.data = buffer_.data() + static_cast<std::size_t>(kZone) * size;
    fill_poison();
}

void GuardedTensor::fill_poison() {
    const std::size_t size = size_bytes(view_.dtype);
    for (std::size_t at = 0; at < buffer_.size(); at += size) poison_at(buffer_.data() + at, size);
}

double GuardedTensor::get(std::int64_t i) const {
    return reference::element_at(view_, offsets_[static_cast<std::size_t>(i)]);
}

void GuardedTensor::set(std::int64_t i, double value) {
    reference::set_element_at(view_, offsets_[static_cast<std::size_t>(i)], value);
}

std::string GuardedTensor::output_fault(const char* name) const {
    const std::size_t size = size_bytes(view_.dtype);
    std::byte poison[8];
    poison_at(poison, size);
    std::vector<bool> is_element(buffer_.size() / size);
    for (const std::int64_t offset : offsets_) is_element[static_cast<std::size_t>(kZone + offset)] = true;
    for (std::size_t i = 0; i < is_element.size(); ++i) {
        const bool poisoned = std::memcmp(buffer_.data() + i * size, poison, size) == 0;
        if (poisoned != is_element[i]) continue;
        const auto at = static_cast<std::int64_t>(i) - kZone;
        return std::string(name) + (poisoned ? ": an element was not written" : ": a guard was overwritten") + ", " +
               std::to_string(at) + " elements from its first";
    }
    return {};
}

}  // namespace flashmla::testing_support
