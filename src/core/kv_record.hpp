// Finding and decoding one token of a paged cache in any format (docs/kv_formats.md has the byte maps).
//
// Nothing here assumes an alignment beyond one byte: caches come as slices of uint8 pools. Every function is inlined,
// so files compiled for wider instruction sets may use them too.
#pragma once

#include <cstdint>

#include "core/float_formats.hpp"
#include "core/host_device.hpp"
#include "core/kv_format.hpp"
#include "flashmla/cache_format.hpp"

namespace flashmla::core {

template <class T>
FLASHMLA_HD T load_unaligned(const void* from) {
    T value;
    __builtin_memcpy(&value, from, sizeof(T));
    return value;
}

template <class T>
FLASHMLA_HD void store_unaligned(void* to, T value) {
    __builtin_memcpy(to, &value, sizeof(T));
}

// How a format divides the d_qk values of a record. A 16-bit or fp8_flat record is all `values`, without group scales.
struct RecordShape {
    int values = 0;      // leading values: 16-bit codes, or e4m3 codes
    int group = 0;       // values that share a stored scale; 0 = none is stored
    int rope = 0;        // bf16 values after them; 0 = they are among `values`
    bool e4m3 = false;   // one byte a value instead of two
    bool packed = true;  // the record is contiguous; fp8_584 keeps its scales at the end of the page

    FLASHMLA_HD constexpr int groups() const { return group == 0 ? 0 : values / group; }
};

FLASHMLA_HD constexpr RecordShape record_shape(CacheFormat format, int d_qk) {
    switch (format) {
        case CacheFormat::kBFloat16:
        case CacheFormat::kFloat16: return {.values = d_qk};
        case CacheFormat::kFp8Flat: return {.values = d_qk, .e4m3 = true};
        case CacheFormat::kFp8_656:
            return {.values = kv656::kQuantized, .group = kv656::kGroup, .rope = kv656::kRope, .e4m3 = true};
        case CacheFormat::kFp8_584:
            return {.values = kv584::kQuantized,
                    .group = kv584::kGroup,
                    .rope = kv584::kRope,
                    .e4m3 = true,
                    .packed = false};
    }
    return {};
}

// A cache pool as bytes. Offsets are 64-bit throughout: page id times stride may pass 2^31.
struct CacheView {
    CacheFormat format = CacheFormat::kBFloat16;
    int d_qk = 0;
    std::int64_t num_pages = 0;
    std::int64_t page_size = 0;     // tokens
    std::int64_t page_bytes = 0;    // from one page to the next: the page stride
    std::int64_t record_bytes = 0;  // from one token to the next within a page; has no meaning for fp8_584
    float scale = 1;                // fp8_flat: what an e4m3 value is multiplied by
    std::uint8_t* data = nullptr;

    FLASHMLA_HD std::uint8_t* page(std::int64_t id) const { return data + id * page_bytes; }
};

// Where the parts of a token lie. `Byte` is std::uint8_t, const for readers.
template <class Byte>
struct RecordParts {
    Byte* values = nullptr;  // e4m3 codes, or 16-bit codes
    Byte* scales = nullptr;  // fp8_656: 4 fp32; fp8_584: 7 e8m0 and a pad byte; null for the others
    Byte* rope = nullptr;    // 64 bf16 codes of fp8_656 and fp8_584; null for the others
};

// Token `token` of the page that starts at `page`. `record_bytes` is the token stride, ignored for fp8_584, whose page
// holds 576 bytes of values for each of its page_size tokens and then 8 bytes of scales for each.
template <class Byte>
FLASHMLA_HD RecordParts<Byte> record_parts(CacheFormat format, Byte* page, std::int64_t token, std::int64_t page_size,
                                           std::int64_t record_bytes) {
    switch (format) {
        case CacheFormat::kBFloat16:
        case CacheFormat::kFloat16:
        case CacheFormat::kFp8Flat: return {.values = page + token * record_bytes};
        case CacheFormat::kFp8_656: {
            Byte* record = page + token * record_bytes;
            return {.values = record, .scales = record + kv656::kScaleOffset, .rope = record + kv656::kRopeOffset};
        }
        case CacheFormat::kFp8_584: {
            Byte* values = page + token * kv584::kValueBytes;
            Byte* scales = page + page_size * kv584::kValueBytes + token * kv584::kScaleBytes;
            return {.values = values, .scales = scales, .rope = values + kv584::kRopeOffset};
        }
    }
    return {};
}

FLASHMLA_HD RecordParts<std::uint8_t> record_parts(const CacheView& cache, std::int64_t page, std::int64_t token) {
    return record_parts(cache.format, cache.page(page), token, cache.page_size, cache.record_bytes);
}

// The scale of group `group`. A NaN code (255) of fp8_584 gives NaN.
FLASHMLA_HD float record_scale(CacheFormat format, const std::uint8_t* scales, int group) {
    if (format == CacheFormat::kFp8_584) return e8m0_to_float(scales[group]);
    return load_unaligned<float>(scales + group * sizeof(float));
}

// Value `index` (below d_qk) of a token. `flat_scale` is the cache's one scale in fp8_flat.
FLASHMLA_HD float record_value(CacheFormat format, const RecordParts<const std::uint8_t>& parts, int index,
                               float flat_scale = 1) {
    switch (format) {
        case CacheFormat::kBFloat16: return bf16_to_float(load_unaligned<std::uint16_t>(parts.values + 2 * index));
        case CacheFormat::kFloat16: return fp16_to_float(load_unaligned<std::uint16_t>(parts.values + 2 * index));
        case CacheFormat::kFp8Flat: return e4m3_to_float(parts.values[index]) * flat_scale;
        case CacheFormat::kFp8_656:
        case CacheFormat::kFp8_584: break;
    }
    const RecordShape shape = record_shape(format, 0);
    if (index >= shape.values) {
        return bf16_to_float(load_unaligned<std::uint16_t>(parts.rope + 2 * (index - shape.values)));
    }
    return e4m3_to_float(parts.values[index]) * record_scale(format, parts.scales, index / shape.group);
}

// All d_qk values of a token as fp32: what attention and gather compute with.
FLASHMLA_HD void decode_record(CacheFormat format, const RecordParts<const std::uint8_t>& parts, int d_qk, float* to,
                               float flat_scale = 1) {
    const RecordShape shape = record_shape(format, d_qk);
    if (!shape.e4m3) {
        for (int i = 0; i < d_qk; ++i) to[i] = record_value(format, parts, i);
        return;
    }
    const int group = shape.group == 0 ? shape.values : shape.group;
    for (int begin = 0; begin < shape.values; begin += group) {
        const float scale = shape.group == 0 ? flat_scale : record_scale(format, parts.scales, begin / group);
        for (int i = begin; i < begin + group; ++i) to[i] = e4m3_to_float(parts.values[i]) * scale;
    }
    for (int i = 0; i < shape.rope; ++i) {
        to[shape.values + i] = bf16_to_float(load_unaligned<std::uint16_t>(parts.rope + 2 * i));
    }
}

// The same for token `token` of the page at `page`.
FLASHMLA_HD void decode_token(CacheFormat format, const std::uint8_t* page, std::int64_t token, std::int64_t page_size,
                              std::int64_t record_bytes, int d_qk, float* to, float flat_scale = 1) {
    decode_record(format, record_parts(format, page, token, page_size, record_bytes), d_qk, to, flat_scale);
}

}  // namespace flashmla::core
