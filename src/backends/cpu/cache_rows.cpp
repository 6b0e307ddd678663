#include "backends/cpu/cache_rows.hpp"

#include "core/kv_quantize.hpp"
#include "core/planted_fault.hpp"

namespace flashmla::backends::cpu {

void encode_row(const CacheKernels& kernels, const core::CacheView& cache, bool power_of_two, const float* row,
                const core::RecordParts<std::uint8_t>& parts) {
    const core::RecordShape shape = core::record_shape(cache.format, cache.d_qk);
    if (!shape.e4m3) {
        kernels.narrow(element_type(cache.format), row, shape.values, parts.values);
        return;
    }
    if (shape.group == 0) {
        kernels.quantize(row, shape.values, cache.scale, parts.values);
        return;
    }
    for (int group = 0; group < shape.groups(); ++group) {
        const float* values = row + group * shape.group;
        const float scale = core::quantizer_scale(kernels.largest_finite(values, shape.group),
                                                  core::uses_power_of_two(cache.format, power_of_two));
        kernels.quantize(values, shape.group, scale, parts.values + group * shape.group);
        const bool wrong = core::planted(core::PlantedFault::kScaleOfWrongTile);
        core::store_scale(cache.format, parts.scales, wrong ? (group + 1) % shape.groups() : group, scale);
    }
    core::store_pad(cache.format, parts.scales);
    kernels.narrow(DType::kBFloat16, row + shape.values, shape.rope, parts.rope);
}

void decode_row(const CacheKernels& kernels, const core::CacheView& cache, const core::RecordParts<std::uint8_t>& parts,
                float* row) {
    const core::RecordShape shape = core::record_shape(cache.format, cache.d_qk);
    if (!shape.e4m3) {
        kernels.widen(element_type(cache.format), parts.values, shape.values, row);
        return;
    }
    if (shape.group == 0) {
        kernels.dequantize(parts.values, shape.values, cache.scale, row);
        return;
    }
    for (int group = 0; group < shape.groups(); ++group) {
        const int begin = group * shape.group;
        const float scale = core::record_scale(cache.format, parts.scales, group);
        kernels.dequantize(parts.values + begin, shape.group, scale, row + begin);
    }
    kernels.widen(DType::kBFloat16, parts.rope, shape.rope, row + shape.values);
}

}  // namespace flashmla::backends::cpu
