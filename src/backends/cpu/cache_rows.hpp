// One token between fp32 and its record.
#pragma once

#include "backends/cpu/cache_kernels.hpp"
#include "core/kv_record.hpp"

namespace flashmla::backends::cpu {

// d_qk values into the record, quantised as the format asks.
void encode_row(const CacheKernels& kernels, const core::CacheView& cache, bool power_of_two, const float* row,
                const core::RecordParts<std::uint8_t>& parts);

// The d_qk values of a record.
void decode_row(const CacheKernels& kernels, const core::CacheView& cache, const core::RecordParts<std::uint8_t>& parts,
                float* row);

// The element type of a 16-bit format.
constexpr DType element_type(CacheFormat format) {
    return format == CacheFormat::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
}

}  // namespace flashmla::backends::cpu
