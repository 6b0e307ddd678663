// Tokens of a test case's caches, in any format.
#pragma once

#include <cstdint>

#include "reference/decode_spec.hpp"

namespace flashmla::reference {

// Elements before and after the tensor in each buffer of a case; a multiple of 128 bytes for every element type, so
// that alignment stays.
inline constexpr std::int64_t kGuard = 128;

struct KeyPlace {
    std::uint16_t* page = nullptr;
    std::int64_t head = 0;
    std::int64_t token = 0;
    std::int64_t page_size = 0;
};

// Encodes d_qk values; flat_scale is what an fp8_flat code is worth.
void write_key(const DecodeSpec& spec, const float* values, float flat_scale, const KeyPlace& place);

// Every byte of the token becomes one of a NaN.
void write_nan(const DecodeSpec& spec, const KeyPlace& place);

}  // namespace flashmla::reference
