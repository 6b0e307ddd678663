// What the bytes of a cache page hold, counted part by part.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cli/kv/cache_file.hpp"

namespace flashmla::cli {

// The parts a token is read in: latent, rotary values, and the scales between them. A format without a separate rotary
// part has kRopeDims of them at the end of d_qk where d_qk is one of DeepSeek's, and otherwise none.
inline constexpr int kRopeDims = 64;
int rope_dims(const core::CacheView& cache);

// Values of one part.
struct ValueStats {
    std::int64_t count = 0, nan = 0, infinite = 0, zero = 0;
    std::int64_t at_limit =
        0;  // the largest finite magnitude of the type: 448 in e4m3, 65504 in fp16; saturated, likely
    double smallest = std::numeric_limits<double>::infinity();  // of the finite values
    double largest = -std::numeric_limits<double>::infinity();
    double sum_of_squares = 0;

    void add(float value, bool limit);
    void add(const ValueStats& other);
    double amax() const;
    double rms() const;
};

// Scales of the packed fp8 formats.
struct ScaleStats {
    std::int64_t count = 0;
    std::int64_t illegal = 0;        // zero, negative, infinite or NaN
    std::int64_t powers_of_two = 0;  // of the legal ones
    std::int64_t at_floor = 0;       // what the quantiser writes for a group of (nearly) nothing: 1e-4 or 2^-13
    std::int64_t below_floor = 0;    // legal, but smaller than the quantiser ever writes
    std::int64_t underused = 0;      // legal and above the floor, yet no code of the group reaches 224: no quantiser's
    double smallest = std::numeric_limits<double>::infinity();
    double largest = 0;
    std::array<std::int64_t, 256> exponents{};  // legal ones by the exponent field of fp32

    void add(float scale, int largest_code);
    void add(const ScaleStats& other);
};

struct PageStats {
    std::int64_t tokens = 0;
    std::int64_t zero_tokens = 0;  // every byte of the token 0: never written, likely; counted in nothing below
    std::int64_t ones_tokens = 0;  // every byte 0xFF: poisoned, likely; counted below
    std::int64_t first_bad = -1;   // slot of the first token with a NaN, an infinity or an illegal scale
    ValueStats latent, rope;
    ScaleStats scales;

    void add(const PageStats& other);
    std::int64_t bad() const { return latent.nan + latent.infinite + rope.nan + rope.infinite + scales.illegal; }
};

PageStats page_stats(const CachePages& file, std::int64_t page);

// Every byte of the token's values, scales and rotary part equals `byte`.
bool token_is_all(const core::CacheView& cache, const core::RecordParts<const std::uint8_t>& parts, std::uint8_t byte);

// Bytes of a page that belong to no value and no scale: padding of the page, the pad byte beside fp8_584's scales.
std::int64_t dead_bytes(const core::CacheView& cache);

}  // namespace flashmla::cli
