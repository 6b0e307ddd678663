// Rows of any length and element type in and out of fp32: what merging and projecting need of an instruction set.
#pragma once

#include <cstdint>

#include "backends/cpu/vector.hpp"
#include "flashmla/types.hpp"

namespace flashmla::backends::cpu {

template <class Ops>
FLASHMLA_INLINE Float<Ops> decode_vector(DType dtype, const void* row, std::int64_t at) {
    if (dtype == DType::kFloat32) return load<Float<Ops>>(static_cast<const float*>(row) + at);
    const std::uint16_t* codes = static_cast<const std::uint16_t*>(row) + at;
    return dtype == DType::kBFloat16 ? decode_bf16<Ops>(codes) : Ops::decode_fp16(codes);
}

template <class Ops>
FLASHMLA_INLINE void encode_vector(DType dtype, Float<Ops> value, void* row, std::int64_t at) {
    if (dtype == DType::kFloat32) {
        store(static_cast<float*>(row) + at, value);
    } else if (dtype == DType::kBFloat16) {
        store(static_cast<std::uint16_t*>(row) + at, __builtin_convertvector(round_to_bf16<Ops>(value), Half<Ops>));
    } else {
        store(static_cast<std::uint16_t*>(row) + at, Half<Ops>(Ops::encode_fp16(value)));
    }
}

// A vector of a row that has `left` >= 1 elements from `at` on: no byte past them is touched, missing lanes are 0.
template <class Ops>
FLASHMLA_INLINE Float<Ops> decode_some(DType dtype, const void* row, std::int64_t at, std::int64_t left) {
    if (left >= Ops::kLanes) return decode_vector<Ops>(dtype, row, at);
    float staging[Ops::kLanes] = {};
    const std::size_t element = size_bytes(dtype);
    __builtin_memcpy(staging, static_cast<const char*>(row) + static_cast<std::size_t>(at) * element,
                     static_cast<std::size_t>(left) * element);
    return decode_vector<Ops>(dtype, staging, 0);
}

template <class Ops>
FLASHMLA_INLINE void encode_some(DType dtype, Float<Ops> value, void* row, std::int64_t at, std::int64_t left) {
    if (left >= Ops::kLanes) {
        encode_vector<Ops>(dtype, value, row, at);
        return;
    }
    float staging[Ops::kLanes];
    encode_vector<Ops>(dtype, value, staging, 0);
    const std::size_t element = size_bytes(dtype);
    __builtin_memcpy(static_cast<char*>(row) + static_cast<std::size_t>(at) * element, staging,
                     static_cast<std::size_t>(left) * element);
}

// sums[i] += weight * row[i]. `sums` holds whole vectors.
template <class Ops>
void add_weighted_row(DType dtype, const void* row, std::int64_t count, float weight, float* sums) {
    const Float<Ops> factor = splat<Ops>(weight);
    for (std::int64_t i = 0; i < count; i += Ops::kLanes) {
        const Float<Ops> value = decode_some<Ops>(dtype, row, i, count - i);
        store(sums + i, Ops::multiply_add_f32(factor, value, load<Float<Ops>>(sums + i)));
    }
}

// Of two 16-bit rows of whole vectors, in fp32: lane by lane, then across lanes in order.
template <class Ops>
float dot_rows(DType dtype, const std::uint16_t* a, const std::uint16_t* b, int count) {
    Float<Ops> sums = {};
    for (int i = 0; i < count; i += Ops::kLanes) {
        sums = Ops::multiply_add_f32(decode_vector<Ops>(dtype, a, i), decode_vector<Ops>(dtype, b, i), sums);
    }
    float total = 0;
    for (int lane = 0; lane < Ops::kLanes; ++lane) total += sums[lane];
    return total;
}

// row[i] = sums[i] * factor, rounded to the row's type. `sums` holds whole vectors.
template <class Ops>
void store_scaled_row(DType dtype, const float* sums, std::int64_t count, float factor, void* row) {
    const Float<Ops> scale = splat<Ops>(factor);
    for (std::int64_t i = 0; i < count; i += Ops::kLanes) {
        encode_some<Ops>(dtype, load<Float<Ops>>(sums + i) * scale, row, i, count - i);
    }
}

}  // namespace flashmla::backends::cpu
