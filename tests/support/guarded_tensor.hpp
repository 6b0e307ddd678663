// A strided tensor in a buffer of its own: gaps between its rows and zones around it hold a NaN pattern (a wild id in
// integers), so that reading them shows in a result and writing them is found.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "flashmla/tensor_view.hpp"

namespace flashmla::testing_support {

class GuardedTensor {
public:
    GuardedTensor() = default;

    // `axes`: the extents. `order`: the axes from the outermost in memory to the innermost; empty: as given. `gap`:
    // elements left free after each step of every axis but the innermost.
    GuardedTensor(DType dtype, std::vector<std::int64_t> axes, std::int64_t gap = 3, std::vector<int> order = {});

    const TensorView& view() const { return view_; }
    std::int64_t elements() const { return static_cast<std::int64_t>(offsets_.size()); }

    // The i-th element in row-major order of the axes, whatever the strides.
    double get(std::int64_t i) const;
    void set(std::int64_t i, double value);
    void fill_poison();  // every element, gaps and zones too

    // Empty, or what is wrong: an element still poisoned, or a byte outside the elements changed.
    std::string output_fault(const char* name) const;
    std::vector<std::byte> bytes() const { return buffer_; }

private:
    std::vector<std::byte> buffer_;
    std::vector<std::int64_t> offsets_;  // of the elements, in elements from view_.data
    TensorView view_;
};

}  // namespace flashmla::testing_support
