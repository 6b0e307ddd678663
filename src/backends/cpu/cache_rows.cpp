#include "backends/cpu/cache_rows.hpp"

#include "core/cache_calls.hpp"
#include "core/kv_quantize.hpp"
#include "core/planted_fault.hpp"

namespace flashmla::backends::cpu {
namespace {

void write_bytes(const Writer& writer, std::uint8_t* to, const std::uint8_t* from, std::int64_t bytes) {
    if (to == nullptr || from == nullptr) return;  // a pool without pages, or a format without that part
    writer.write(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace

TokenEncoder::TokenEncoder(const CacheKernels& kernels, const core::CacheView& cache, bool power_of_two)
    : kernels_(kernels),
      format_(cache.format),
      shape_(core::record_shape(cache.format, cache.d_qk)),
      power_of_two_(core::uses_power_of_two(cache.format, power_of_two)),
      flat_(cache.format == CacheFormat::kFp8Flat ? flat_scale(kernels, cache.scale) : FlatScale{}) {}

void TokenEncoder::encode(const TokenValues& token, const core::RecordParts<std::uint8_t>& parts) const {
    const ValueRun& latent = token.latent;
    const ValueRun& rope = token.rope;
    if (!shape_.e4m3) {
        const DType dtype = element_type(format_);
        kernels_.cast(latent.dtype, latent.data, latent.width, dtype, parts.values);
        kernels_.cast(rope.dtype, rope.data, rope.width, dtype, parts.values + 2 * latent.width);
        return;
    }
    if (shape_.group == 0) {
        kernels_.quantize(latent.dtype, latent.data, latent.width, flat_, parts.values);
        kernels_.quantize(rope.dtype, rope.data, rope.width, flat_, parts.values + latent.width);
        return;
    }
    float scales[kMaxGroups];
    kernels_.quantize_groups({.dtype = latent.dtype,
                              .data = latent.data,
                              .groups = shape_.groups(),
                              .group = shape_.group,
                              .power_of_two = power_of_two_},
                             scales, parts.values);
    for (int group = 0; group < shape_.groups(); ++group) {
        const bool wrong = core::planted(core::PlantedFault::kScaleOfWrongTile);
        core::store_scale(format_, parts.scales, wrong ? (group + 1) % shape_.groups() : group, scales[group]);
    }
    core::store_pad(format_, parts.scales);
    kernels_.cast(rope.dtype, rope.data, rope.width, DType::kBFloat16, parts.rope);
}

void decode_token(const CacheKernels& kernels, const core::CacheView& cache,
                  const core::RecordParts<std::uint8_t>& parts, DType dtype, std::uint8_t* to) {
    const core::RecordShape shape = core::record_shape(cache.format, cache.d_qk);
    if (!shape.e4m3) {
        kernels.cast(element_type(cache.format), parts.values, shape.values, dtype, to);
        return;
    }
    if (shape.group == 0) {
        kernels.dequantize(parts.values, shape.values, cache.scale, dtype, to);
        return;
    }
    const auto value_bytes = static_cast<std::int64_t>(size_bytes(dtype));
    for (int group = 0; group < shape.groups(); ++group) {
        const int begin = group * shape.group;
        const float scale = core::record_scale(cache.format, parts.scales, group);
        kernels.dequantize(parts.values + begin, shape.group, scale, dtype, to + begin * value_bytes);
    }
    kernels.cast(DType::kBFloat16, parts.rope, shape.rope, dtype, to + shape.values * value_bytes);
}

TokenValues divide_row(CacheFormat format, int d_qk, DType dtype, const std::uint8_t* row) {
    const core::RecordShape shape = core::record_shape(format, d_qk);
    return {.latent = {.dtype = dtype, .data = row, .width = shape.values},
            .rope = {.dtype = dtype,
                     .data = row + static_cast<std::int64_t>(size_bytes(dtype)) * shape.values,
                     .width = shape.rope}};
}

void copy_records(const core::CacheView& source, PageTokens from, const core::CacheView& destination, PageTokens to,
                  std::int64_t count, const Writer& writer) {
    const auto from_parts = core::record_parts(source, from.page, from.begin);
    const auto to_parts = core::record_parts(destination, to.page, to.begin);
    if (source.format == CacheFormat::kFp8_584) {
        write_bytes(writer, to_parts.values, from_parts.values, count * core::kv584::kValueBytes);
        write_bytes(writer, to_parts.scales, from_parts.scales, count * core::kv584::kScaleBytes);
        return;
    }
    const std::int64_t record = cache_record_bytes(source.format, source.d_qk);
    if (source.record_bytes == record && destination.record_bytes == record) {
        write_bytes(writer, to_parts.values, from_parts.values, count * record);
        return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
        write_bytes(writer, to_parts.values + i * destination.record_bytes, from_parts.values + i * source.record_bytes,
                    record);
    }
}

RecordStage::RecordStage(const core::CacheView& cache) : view_(cache) {
    static_assert(sizeof(bytes_) >= 2 * core::kMaxRecordValues, "a record of any width fits");
    view_.num_pages = 1;
    view_.record_bytes = cache_record_bytes(cache.format, cache.d_qk);
    view_.page_size = static_cast<std::int64_t>(sizeof(bytes_)) / view_.record_bytes;
    view_.page_bytes = sizeof(bytes_);
    view_.data = bytes_;
}

}  // namespace flashmla::backends::cpu
