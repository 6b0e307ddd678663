#include "cli/kv/page_stats.hpp"

#include <algorithm>
#include <cmath>

#include "core/kv_quantize.hpp"

namespace flashmla::cli {
namespace {

constexpr int kE4m3Limit = 0x7e;      // 448
constexpr int kE4m3HalfRange = 0x76;  // 224: the quantiser's largest code of a group is at least that
constexpr std::uint16_t kFp16Limit = 0x7bff;

bool all_bytes(const std::uint8_t* from, std::int64_t count, std::uint8_t byte) {
    return std::all_of(from, from + count, [byte](std::uint8_t b) { return b == byte; });
}

// Adds values [begin, end) of a token's main part; returns the largest magnitude code where they are e4m3.
int add_values(const core::CacheView& cache, const std::uint8_t* codes, int begin, int end, float scale,
               ValueStats& stats) {
    int largest_code = 0;
    for (int i = begin; i < end; ++i) {
        if (cache.format == CacheFormat::kBFloat16) {
            stats.add(core::bf16_to_float(core::load_unaligned<std::uint16_t>(codes + 2 * i)), false);
        } else if (cache.format == CacheFormat::kFloat16) {
            const auto code = core::load_unaligned<std::uint16_t>(codes + 2 * i);
            stats.add(core::fp16_to_float(code), (code & 0x7fff) == kFp16Limit);
        } else {
            const int magnitude = codes[i] & 0x7f;
            stats.add(core::e4m3_to_float(codes[i]) * scale, magnitude == kE4m3Limit);
            largest_code = std::max(largest_code, magnitude);
        }
    }
    return largest_code;
}

}  // namespace

int rope_dims(const core::CacheView& cache) {
    const core::RecordShape shape = core::record_shape(cache.format, cache.d_qk);
    if (shape.rope > 0) return shape.rope;
    return cache.d_qk == 576 || cache.d_qk == 320 ? kRopeDims : 0;
}

void ValueStats::add(float value, bool limit) {
    ++count;
    nan += std::isnan(value);
    infinite += std::isinf(value);
    zero += value == 0;
    at_limit += limit;
    if (!std::isfinite(value)) return;
    smallest = std::min<double>(smallest, value);
    largest = std::max<double>(largest, value);
    sum_of_squares += static_cast<double>(value) * value;
}

void ValueStats::add(const ValueStats& other) {
    count += other.count;
    nan += other.nan;
    infinite += other.infinite;
    zero += other.zero;
    at_limit += other.at_limit;
    smallest = std::min(smallest, other.smallest);
    largest = std::max(largest, other.largest);
    sum_of_squares += other.sum_of_squares;
}

double ValueStats::amax() const { return largest >= smallest ? std::max(-smallest, largest) : 0; }

double ValueStats::rms() const {
    const std::int64_t finite = count - nan - infinite;
    return finite > 0 ? std::sqrt(sum_of_squares / static_cast<double>(finite)) : 0;
}

void ScaleStats::add(float scale, int largest_code) {
    ++count;
    if (!std::isfinite(scale) || scale <= 0) {
        ++illegal;
        return;
    }
    const std::uint32_t bits = core::float_bits(scale);
    const bool power = (bits & 0x7fffff) == 0 || scale == 0x1p-127F;
    const bool floor = scale == core::kSmallestScale || scale == core::round_up_to_power_of_two(core::kSmallestScale);
    powers_of_two += power;
    at_floor += floor;
    below_floor += scale < core::kSmallestScale;
    underused += !floor && largest_code < kE4m3HalfRange;
    smallest = std::min<double>(smallest, scale);
    largest = std::max<double>(largest, scale);
    ++exponents[bits >> 23];
}

void ScaleStats::add(const ScaleStats& other) {
    count += other.count;
    illegal += other.illegal;
    powers_of_two += other.powers_of_two;
    at_floor += other.at_floor;
    below_floor += other.below_floor;
    underused += other.underused;
    smallest = std::min(smallest, other.smallest);
    largest = std::max(largest, other.largest);
    for (std::size_t i = 0; i < exponents.size(); ++i) exponents[i] += other.exponents[i];
}

void PageStats::add(const PageStats& other) {
    tokens += other.tokens;
    zero_tokens += other.zero_tokens;
    ones_tokens += other.ones_tokens;
    if (first_bad < 0) first_bad = other.first_bad;
    latent.add(other.latent);
    rope.add(other.rope);
    scales.add(other.scales);
}

bool token_is_all(const core::CacheView& cache, const core::RecordParts<const std::uint8_t>& parts, std::uint8_t byte) {
    const core::RecordShape shape = core::record_shape(cache.format, cache.d_qk);
    const std::int64_t scale_bytes = shape.groups() * (shape.packed ? 4 : 1);
    return all_bytes(parts.values, shape.values * (shape.e4m3 ? 1 : 2), byte) &&
           (parts.scales == nullptr || all_bytes(parts.scales, scale_bytes, byte)) &&
           (parts.rope == nullptr || all_bytes(parts.rope, shape.rope * 2, byte));
}

PageStats page_stats(const CachePages& file, std::int64_t page) {
    const core::CacheView& cache = file.cache;
    const core::RecordShape shape = core::record_shape(cache.format, cache.d_qk);
    const int latent = shape.rope > 0 ? shape.values : cache.d_qk - rope_dims(cache);
    PageStats stats;
    stats.tokens = cache.page_size;
    for (std::int64_t token = 0; token < cache.page_size; ++token) {
        const std::int64_t slot = page * cache.page_size + token;
        const core::RecordParts<const std::uint8_t> parts = file.parts(slot);
        if (token_is_all(cache, parts, 0)) {
            ++stats.zero_tokens;
            continue;
        }
        stats.ones_tokens += token_is_all(cache, parts, 0xff);
        const std::int64_t bad = stats.bad();
        for (int group = 0; group < shape.groups(); ++group) {
            const float scale = core::record_scale(cache.format, parts.scales, group);
            const int begin = group * shape.group;
            stats.scales.add(scale, add_values(cache, parts.values, begin, begin + shape.group, scale, stats.latent));
        }
        if (shape.groups() == 0) {
            add_values(cache, parts.values, 0, latent, cache.scale, stats.latent);
            add_values(cache, parts.values, latent, shape.values, cache.scale, stats.rope);
        }
        for (int i = 0; i < shape.rope; ++i) {
            stats.rope.add(core::bf16_to_float(core::load_unaligned<std::uint16_t>(parts.rope + 2 * i)), false);
        }
        if (stats.first_bad < 0 && stats.bad() > bad) stats.first_bad = slot;
    }
    return stats;
}

std::int64_t dead_bytes(const core::CacheView& cache) {
    const std::int64_t pad = cache.format == CacheFormat::kFp8_584 ? 1 : 0;  // beside the 7 scales
    return cache.page_bytes - cache.page_size * (cache.record_bytes - pad);
}

}  // namespace flashmla::cli
