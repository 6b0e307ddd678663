#include "reference/case_pool.hpp"

#include <cstring>

#include "core/kv_quantize.hpp"
#include "core/kv_record.hpp"

namespace flashmla::reference {
namespace {

core::RecordParts<std::uint8_t> parts_at(const DecodeSpec& spec, const KeyPlace& place) {
    const CacheFormat format = cache_format(spec);
    const std::int64_t record = cache_record_bytes(format, spec.d_qk);
    auto* page = reinterpret_cast<std::uint8_t*>(place.page) + place.head * record;
    return core::record_parts(format, page, place.token, place.page_size, spec.h_kv * record);
}

}  // namespace

void write_key(const DecodeSpec& spec, const float* values, float flat_scale, const KeyPlace& place) {
    const core::RecordParts<std::uint8_t> parts = parts_at(spec, place);
    core::encode_record(cache_format(spec), values, static_cast<int>(spec.d_qk), spec.power_of_two_scales, flat_scale,
                        parts);
    if (spec.format == CacheFormat::kFp8_584) parts.scales[7] = 0xff;  // the pad byte may hold anything
}

void write_nan(const DecodeSpec& spec, const KeyPlace& place) {
    const core::RecordParts<std::uint8_t> parts = parts_at(spec, place);
    const core::RecordShape shape = core::record_shape(cache_format(spec), static_cast<int>(spec.d_qk));
    std::memset(parts.values, 0xff, shape.values * (shape.e4m3 ? 1 : 2));
    if (parts.rope != nullptr) std::memset(parts.rope, 0xff, 2 * shape.rope);
    if (parts.scales != nullptr) std::memset(parts.scales, 0xff, spec.format == CacheFormat::kFp8_584 ? 8 : 16);
}

}  // namespace flashmla::reference
