#include "flashmla/cache_format.hpp"

#include <string>

#include "core/kv_format.hpp"

namespace flashmla {

std::int64_t cache_record_bytes(CacheFormat format, std::int64_t d_qk) {
    switch (format) {
        case CacheFormat::kBFloat16:
        case CacheFormat::kFloat16: return 2 * d_qk;
        case CacheFormat::kFp8Flat: return d_qk;
        case CacheFormat::kFp8_656: return core::kv656::kRecordBytes;
        case CacheFormat::kFp8_584: return core::kv584::kRecordBytes;
    }
    return 0;
}

std::int64_t cache_page_bytes(CacheFormat format, std::int64_t d_qk, std::int64_t page_size) {
    const std::int64_t bytes = page_size * cache_record_bytes(format, d_qk);
    if (format != CacheFormat::kFp8_584) return bytes;
    constexpr std::int64_t kGranule = core::kv584::kPageGranuleBytes;
    return (bytes + kGranule - 1) / kGranule * kGranule;
}

Result<CacheFormat> cache_format_of(std::int64_t d_qk, const TensorView& cache, const char* argument) {
    const std::int64_t record = cache.rank > 0 ? cache.shape[cache.rank - 1] : 0;
    const bool one_byte = size_bytes(cache.dtype) == 1;
    if (!one_byte && record == d_qk) {
        if (cache.dtype == DType::kBFloat16) return CacheFormat::kBFloat16;
        if (cache.dtype == DType::kFloat16) return CacheFormat::kFloat16;
    }
    if (one_byte && record == d_qk) return CacheFormat::kFp8Flat;
    if (one_byte && d_qk == core::kv656::kDimQk && record == core::kv656::kRecordBytes) return CacheFormat::kFp8_656;
    if (one_byte && d_qk == core::kv584::kDimQk && record == core::kv584::kRecordBytes) return CacheFormat::kFp8_584;
    return invalid_argument(
        std::string(argument) + ": got last axis " + std::to_string(record) + " of " + name(cache.dtype) +
        " with d_qk " + std::to_string(d_qk) + ", wanted " + std::to_string(d_qk) + " of bfloat16 or float16, " +
        std::to_string(d_qk) +
        " of float8_e4m3fn or uint8 (fp8_flat), or one-byte records of 656 (d_qk 576) or 584 (d_qk 512)");
}

}  // namespace flashmla
