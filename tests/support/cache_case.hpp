// Cache pools with poison around every record, and rows of hard values, for tests of the cache operations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flashmla/kv_cache.hpp"
#include "reference/random.hpp"

namespace flashmla::test {

struct PoolSpec {
    CacheFormat format = CacheFormat::kBFloat16;
    std::int64_t d_qk = 576;
    std::int64_t num_pages = 3;
    std::int64_t page_size = 64;
    std::int64_t page_gap_bytes = 0;    // between pages: padding, or the pages of other layers
    std::int64_t record_gap_bytes = 0;  // between tokens of a page; not for fp8_584
};

// One cache in memory of its own, all of it 0xff (NaN in every format) at first. Everything around the records is
// guard.
class Pool {
public:
    explicit Pool(const PoolSpec& spec);

    TensorView view();
    const PoolSpec& spec() const { return spec_; }
    std::vector<std::uint8_t>& bytes() { return bytes_; }
    std::int64_t slots() const { return spec_.num_pages * spec_.page_size; }

    // Random codes in every record; the poison around them stays. Every code occurs, NaN among them unless `finite`.
    void fill(std::uint64_t seed, bool finite = true);

    // Offsets in bytes() of the bytes of one token's record, in no particular order.
    std::vector<std::size_t> record_bytes(std::int64_t page, std::int64_t token) const;

private:
    PoolSpec spec_;
    std::vector<std::uint8_t> bytes_;
};

// The first byte that differs outside the records of `slots`, or -1: writers may touch nothing else.
std::int64_t first_stray_write(Pool& before, Pool& after, const std::vector<std::int64_t>& slots);

// Rows (n, width) of bf16, fp16 or fp32 with a stride of their own and NaN between the rows.
class Rows {
public:
    Rows(DType dtype, std::int64_t n, std::int64_t width, std::int64_t gap = 3);

    TensorView view();
    void set(std::int64_t row, std::int64_t column, float value);
    float get(std::int64_t row, std::int64_t column) const;
    std::vector<std::uint8_t>& bytes() { return bytes_; }

    // Magnitudes from 2^-20 to 2^12 that vary from group to group, zeros of both signs, subnormals and, unless
    // `finite`, NaN and infinities.
    void fill(std::uint64_t seed, bool finite = true);

private:
    DType dtype_;
    std::int64_t n_, width_, stride_;
    std::vector<std::uint8_t> bytes_;
};

// n ids as int32 or int64.
class Ids {
public:
    Ids(std::vector<std::int64_t> values, bool wide);
    TensorView view() const;
    const std::vector<std::int64_t>& values() const { return wide_values_; }

private:
    std::vector<std::int64_t> wide_values_;
    std::vector<std::int32_t> values_;
    bool wide_;
};

// Every format with the d_qk that tests use for it: plain ones also with odd widths.
struct FormatCase {
    CacheFormat format;
    std::int64_t d_qk;
    std::int64_t rope;
};
inline constexpr FormatCase kFormatCases[] = {
    {CacheFormat::kBFloat16, 576, 64}, {CacheFormat::kFloat16, 576, 64}, {CacheFormat::kFp8Flat, 576, 64},
    {CacheFormat::kFp8_656, 576, 64},  {CacheFormat::kFp8_584, 512, 64}, {CacheFormat::kBFloat16, 37, 6},
    {CacheFormat::kFp8Flat, 51, 0},    {CacheFormat::kFloat16, 512, 0},
};

// The narrowest to the widest code path of this machine, by the names that FLASHMLA_CPU_ISA takes.
std::vector<std::string> native_paths();

}  // namespace flashmla::test
