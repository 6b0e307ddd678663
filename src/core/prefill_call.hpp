// Dense prefill and its backward, checked: a backend may rely on every field.
#pragma once

#include <cstdint>

#include "flashmla/prefill.hpp"

namespace flashmla::core {

// A tensor over (token, head), with a contiguous last axis if it has one. Strides in elements.
template <class T>
struct HeadRows {
    T* data = nullptr;
    std::int64_t token_stride = 0, head_stride = 0;

    T* at(std::int64_t token, std::int64_t head) const { return data + token * token_stride + head * head_stride; }
};

struct DensePrefillCall {
    const PrefillPlan* plan = nullptr;  // shapes, kernel, workers
    float softmax_scale = 0;
    HeadRows<const std::uint16_t> q, k, v;
    const std::int32_t* cu_seqlens_q = nullptr;  // rising, b + 1 each
    const std::int32_t* cu_seqlens_kv = nullptr;
    HeadRows<std::uint16_t> out;  // the backward only reads out and lse
    HeadRows<float> lse;
    void* workspace = nullptr;
    StreamHandle stream = nullptr;

    int length_q(std::int64_t request) const { return cu_seqlens_q[request + 1] - cu_seqlens_q[request]; }
    int length_kv(std::int64_t request) const { return cu_seqlens_kv[request + 1] - cu_seqlens_kv[request]; }
};

struct DensePrefillBackwardCall {
    DensePrefillCall forward;
    HeadRows<const std::uint16_t> dout;
    HeadRows<const float> dlse;  // data null: not given
    HeadRows<std::uint16_t> dq, dk, dv;
};

}  // namespace flashmla::core
