// Rows of any length and element type in and out of fp32: what merging and projecting need of an instruction set.
#pragma once

#include <cstdint>

#include "backends/cpu/vector.hpp"
#include "flashmla/types.hpp"

namespace flashmla::backends::cpu {

// Calls body(whole vector's first element) for each vector of a row; a shorter last one goes through `staged`.
template <class Ops, class Body, class Staged>
FLASHMLA_INLINE void for_each_vector(std::int64_t count, const Body& body, const Staged& staged) {
    std::int64_t i = 0;
    for (; i + Ops::kLanes <= count; i += Ops::kLanes) body(i);
    if (i < count) staged(i, static_cast<int>(count - i));
}

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

// sums[i] += weight * row[i]. `sums` holds whole vectors.
template <class Ops>
void add_weighted_row(DType dtype, const void* row, std::int64_t count, float weight, float* sums) {
    const Float<Ops> factor = splat<Ops>(weight);
    const auto add = [&](const void* from, std::int64_t at, std::int64_t to) {
        const Float<Ops> value = decode_vector<Ops>(dtype, from, at);
        store(sums + to, Ops::multiply_add_f32(factor, value, load<Float<Ops>>(sums + to)));
    };
    for_each_vector<Ops>(
        count, [&](std::int64_t i) { add(row, i, i); },
        [&](std::int64_t i, int left) {
            float staging[Ops::kLanes] = {};
            const std::size_t element = size_bytes(dtype);
            __builtin_memcpy(staging, static_cast<const char*>(row) + static_cast<std::size_t>(i) * element,
                             static_cast<std::size_t>(left) * element);
            add(staging, 0, i);
        });
}

// row[i] = sums[i] * factor, rounded to the row's type. `sums` holds whole vectors.
template <class Ops>
void store_scaled_row(DType dtype, const float* sums, std::int64_t count, float factor, void* row) {
    const Float<Ops> scale = splat<Ops>(factor);
    for_each_vector<Ops>(
        count, [&](std::int64_t i) { encode_vector<Ops>(dtype, load<Float<Ops>>(sums + i) * scale, row, i); },
        [&](std::int64_t i, int left) {
            float staging[Ops::kLanes];
            encode_vector<Ops>(dtype, load<Float<Ops>>(sums + i) * scale, staging, 0);
            const std::size_t element = size_bytes(dtype);
            __builtin_memcpy(static_cast<char*>(row) + static_cast<std::size_t>(i) * element, staging,
                             static_cast<std::size_t>(left) * element);
        });
}

}  // namespace flashmla::backends::cpu
