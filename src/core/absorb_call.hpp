// One of the two projections around absorbed attention, checked: a backend may rely on every field.
#pragma once

#include <cstdint>

#include "flashmla/types.hpp"

namespace flashmla::core {

// out[n, h, j] = sum_i x[n, h, i] w(h, i, j), where w(h, i, j) is weight[h, i, j], or weight[h, j, i] with
// `transposed`.
struct AbsorbCall {
    DType dtype = DType::kBFloat16;  // of all three
    std::int64_t n = 0, h = 0, depth = 0, columns = 0;
    bool transposed = false;
    const void* x = nullptr;
    std::int64_t x_row = 0, x_head = 0;  // strides in elements
    const void* weight = nullptr;
    std::int64_t weight_head = 0, weight_row = 0;
    void* out = nullptr;
    std::int64_t out_row = 0, out_head = 0;
    int threads = 1;
};

}  // namespace flashmla::core
