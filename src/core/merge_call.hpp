// A merge of partial results, checked: a backend may rely on every field.
#pragma once

#include <cstdint>
#include <span>

#include "flashmla/tensor_view.hpp"

namespace flashmla::core {

// Strides of a tensor over (request, token, head), in its elements.
struct RowStrides {
    std::int64_t b = 0, token = 0, head = 0;

    std::int64_t offset(std::int64_t request, std::int64_t t, std::int64_t h) const {
        return request * b + t * token + h * head;
    }
};

struct MergeCall {
    std::span<const TensorView> outs;  // (b, s_q, h_q, d_v) or (s_q, h_q, d_v)
    std::span<const TensorView> lses;  // (b, h_q, s_q) or (s_q, h_q)
    TensorView out;
    TensorView lse;
    std::int64_t b = 1, s_q = 0, h_q = 0, d_v = 0;
    int threads = 1;
};

// Tensors without a batch axis get stride 0 for it.
inline RowStrides value_strides(const TensorView& out) {
    const auto& s = out.stride;
    return out.rank == 4 ? RowStrides{s[0], s[1], s[2]} : RowStrides{0, s[0], s[1]};
}
inline RowStrides lse_strides(const TensorView& lse) {
    const auto& s = lse.stride;
    return lse.rank == 3 ? RowStrides{s[0], s[2], s[1]} : RowStrides{0, s[0], s[1]};
}

}  // namespace flashmla::core
