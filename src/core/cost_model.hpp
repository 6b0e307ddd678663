// Bytes and FLOPs of one dense decode step, and the time that a device needs at least. Plan, run, bench and simulate
// share it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "flashmla/device.hpp"
#include "flashmla/plan.hpp"

namespace flashmla::core {

// Memory traffic counts every tensor once, which is what a perfect kernel moves.
struct DecodeCost {
    double kv_bytes = 0;  // latent cache rows of all requests
    double q_bytes = 0;
    double out_bytes = 0;  // out and lse
    double flops = 0;      // a multiply-add is 2

    double bytes() const { return kv_bytes + q_bytes + out_bytes; }
};

// total_keys = sum of the lengths. FLOPs are those of the full rectangle s_q x len, also under a causal mask: the usual
// convention, and exact for s_q = 1.
inline DecodeCost decode_cost(const DecodeShape& shape, std::int64_t total_keys) {
    const double element = static_cast<double>(size_bytes(shape.dtype));
    const double keys = static_cast<double>(total_keys);
    const double rows = static_cast<double>(shape.b) * static_cast<double>(shape.s_q) * static_cast<double>(shape.h_q);
    const double d_qk = static_cast<double>(shape.d_qk);
    const double d_v = static_cast<double>(shape.d_v);
    return {
        .kv_bytes = keys * static_cast<double>(shape.h_kv) * d_qk * element,
        .q_bytes = rows * d_qk * element,
        .out_bytes = rows * (d_v * element + 4),
        .flops = 2 * static_cast<double>(shape.h_q) * static_cast<double>(shape.s_q) * keys * (d_qk + d_v),
    };
}

// Bytes of cache that standard multi-head attention reads for the same tokens: keys and values of `heads` heads.
inline double mha_kv_bytes(std::int64_t heads, std::int64_t head_dim, std::int64_t total_keys, DType dtype) {
    return 2.0 * static_cast<double>(heads) * static_cast<double>(head_dim) * static_cast<double>(total_keys) *
           static_cast<double>(size_bytes(dtype));
}

struct Roofline {
    double memory_seconds = 0;   // 0 when the device's rate is not known
    double compute_seconds = 0;  // likewise
    double seconds() const { return std::max(memory_seconds, compute_seconds); }
    bool memory_bound() const { return memory_seconds >= compute_seconds; }
};

inline Roofline roofline(double bytes, double flops, const DeviceInfo& device) {
    return {
        .memory_seconds = device.memory_gbps > 0 ? bytes / (device.memory_gbps * 1e9) : 0,
        .compute_seconds = device.matrix_tflops > 0 ? flops / (device.matrix_tflops * 1e12) : 0,
    };
}

inline Roofline roofline(const DecodeCost& cost, const DeviceInfo& device) {
    return roofline(cost.bytes(), cost.flops, device);
}

}  // namespace flashmla::core
