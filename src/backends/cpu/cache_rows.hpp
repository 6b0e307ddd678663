// One token between its values and its record, and records from place to place.
#pragma once

#include "backends/cpu/cache_kernels.hpp"
#include "backends/cpu/parallel.hpp"
#include "backends/cpu/stream_copy.hpp"
#include "core/kv_record.hpp"

namespace flashmla::backends::cpu {

// Contiguous values of bf16, fp16 or fp32.
struct ValueRun {
    DType dtype = DType::kFloat32;
    const std::uint8_t* data = nullptr;
    int width = 0;
};

// The d_qk values of a token. Records with group scales want their division into latent and rotary part; for the
// others all values may be `latent`.
struct TokenValues {
    ValueRun latent;
    ValueRun rope;
};

// Tokens into records of a cache, quantised as its format asks. One serves all threads of a call.
class TokenEncoder {
public:
    TokenEncoder(const CacheKernels& kernels, const core::CacheView& cache, bool power_of_two);
    void encode(const TokenValues& token, const core::RecordParts<std::uint8_t>& parts) const;

private:
    const CacheKernels& kernels_;
    const CacheFormat format_;
    const core::RecordShape shape_;
    const bool power_of_two_;
    const FlatScale flat_;
};

// The d_qk values of a record, one after the other.
void decode_token(const CacheKernels& kernels, const core::CacheView& cache,
                  const core::RecordParts<std::uint8_t>& parts, DType dtype, std::uint8_t* to);

// The values of a row of d_qk of them, divided as records of `format` divide theirs.
TokenValues divide_row(CacheFormat format, int d_qk, DType dtype, const std::uint8_t* row);

// Tokens of a page.
struct PageTokens {
    std::int64_t page = 0;
    std::int64_t begin = 0;
};

// `count` records as they are, between caches of one format. Bytes beside the records (padding of a page, other layers
// between tokens) are left alone.
void copy_records(const core::CacheView& source, PageTokens from, const core::CacheView& destination, PageTokens to,
                  std::int64_t count, const Writer& writer);

// A page of a few records in memory of its own, in a first-level cache, where they are put together before they are
// streamed to their places.
class RecordStage {
public:
    explicit RecordStage(const core::CacheView& cache);
    RecordStage(const RecordStage&) = delete;
    RecordStage& operator=(const RecordStage&) = delete;

    // Records that it holds, at least 1.
    std::int64_t capacity() const { return view_.page_size; }
    core::RecordParts<std::uint8_t> parts(std::int64_t index) const { return core::record_parts(view_, 0, index); }
    // The first `count` of them to tokens of a page.
    void write(const core::CacheView& cache, PageTokens to, std::int64_t count, const Writer& writer) const {
        copy_records(view_, {}, cache, to, count, writer);
    }

private:
    core::CacheView view_;
    alignas(64) std::uint8_t bytes_[16384];
};

// The element type of a 16-bit format.
constexpr DType element_type(CacheFormat format) {
    return format == CacheFormat::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
}

}  // namespace flashmla::backends::cpu
