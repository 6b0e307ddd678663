// The byte formats of a latent KV cache (docs/kv_formats.md has the byte maps).
#pragma once

#include <cstdint>

#include "flashmla/status.hpp"
#include "flashmla/tensor_view.hpp"
#include "flashmla/types.hpp"

namespace flashmla {

enum class CacheFormat : std::uint8_t {
    kBFloat16,
    kFloat16,
    kFp8Flat,  // every value e4m3, one scale for the cache
    kFp8_656,  // DeepSeek-V3.2: 512 e4m3, 4 fp32 scales (one per 128 values), 64 bf16 rotary values
    kFp8_584,  // V4: 448 e4m3 and 64 bf16 rotary values, 7 e8m0 scales (one per 64 values) and a pad byte
};

inline constexpr CacheFormat kAllCacheFormats[] = {CacheFormat::kBFloat16, CacheFormat::kFloat16, CacheFormat::kFp8Flat,
                                                   CacheFormat::kFp8_656, CacheFormat::kFp8_584};

constexpr const char* name(CacheFormat format) {
    switch (format) {
        case CacheFormat::kBFloat16: return "bf16";
        case CacheFormat::kFloat16: return "fp16";
        case CacheFormat::kFp8Flat: return "fp8_flat";
        case CacheFormat::kFp8_656: return "fp8_656";
        case CacheFormat::kFp8_584: return "fp8_584";
    }
    return "unknown";
}

// The cache format that holds values as the queries' own 16-bit dtype does.
constexpr CacheFormat cache_format_16bit(DType dtype) {
    return dtype == DType::kFloat16 ? CacheFormat::kFloat16 : CacheFormat::kBFloat16;
}

constexpr bool is_16bit(CacheFormat format) {
    return format == CacheFormat::kBFloat16 || format == CacheFormat::kFloat16;
}

// Bytes of one token's record: 2 d_qk, d_qk, 656 or 584.
std::int64_t cache_record_bytes(CacheFormat format, std::int64_t d_qk);

// Bytes from the first byte of a page to the last one that belongs to it: page_size records; for fp8_584 rounded up to
// a multiple of 576.
std::int64_t cache_page_bytes(CacheFormat format, std::int64_t d_qk, std::int64_t page_size);

// The format of a cache tensor (num_pages, page_size, h_kv, record) that serves queries of d_qk values: (576, 656) and
// (512, 584) with a one-byte dtype, (d_qk, d_qk) with a one-byte dtype = flat, otherwise bf16 or fp16 by dtype.
// kInvalidArgument names `argument` and the pair, and lists what is accepted.
Result<CacheFormat> cache_format_of(std::int64_t d_qk, const TensorView& cache, const char* argument = "k_cache");

}  // namespace flashmla
