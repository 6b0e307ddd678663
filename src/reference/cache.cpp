#include "reference/cache.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/float_formats.hpp"

namespace flashmla::reference {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
T read_as(const std::uint8_t* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
}

// Groups of a record that share a scale.
struct Groups {
    int count = 0;
    int size = 0;
    int scale_byte = 0;  // where the scales begin, counted as in a contiguous record
    int rope_byte = 0;
};

Groups groups_of(CacheFormat format) {
    if (format == CacheFormat::kFp8_656) return {.count = 4, .size = 128, .scale_byte = 512, .rope_byte = 528};
    if (format == CacheFormat::kFp8_584) return {.count = 7, .size = 64, .scale_byte = 576, .rope_byte = 448};
    return {};
}

}  // namespace

double e4m3_value(std::uint8_t code) {
    static const std::array<double, 256> values = [] {
        std::array<double, 256> table{};
        for (int c = 0; c < 256; ++c) {
            const int exponent = (c >> 3) & 15;
            const int mantissa = c & 7;
            double magnitude =
                exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
            if (exponent == 15 && mantissa == 7) magnitude = kNan;
            table[c] = c >= 128 ? -magnitude : magnitude;
        }
        return table;
    }();
    return values[code];
}

std::uint8_t nearest_e4m3(double x) {
    const int sign = std::signbit(x) ? 128 : 0;
    if (std::isnan(x)) return static_cast<std::uint8_t>(sign + 127);
    static const std::array<double, 127> values = [] {
        std::array<double, 127> table{};
        for (int code = 0; code < 127; ++code) table[code] = e4m3_value(static_cast<std::uint8_t>(code));
        return table;
    }();
    const double magnitude = std::fabs(x);
    if (magnitude >= values.back()) return static_cast<std::uint8_t>(sign + 126);
    int best = 0;
    for (int code = 1; code < 127; ++code) {
        const double distance = std::fabs(values[code] - magnitude);
        const double closest = std::fabs(values[best] - magnitude);
        if (distance < closest || (distance == closest && code % 2 == 0)) best = code;
    }
    return static_cast<std::uint8_t>(sign + best);
}

float group_scale(double amax, bool power_of_two) {
    // A quotient of floats rounded to double and then to float is rounded right: 53 bits are more than 2 * 24 + 2.
    const float scale = std::max(static_cast<float>(amax / 448.0), 1e-4f);
    if (!power_of_two) return scale;
    int exponent = 0;
    const float fraction = std::frexp(scale, &exponent);  // in [0.5, 1)
    return static_cast<float>(std::ldexp(1.0, fraction == 0.5f ? exponent - 1 : exponent));
}

CacheTokens::CacheTokens(const TensorView& cache, std::int64_t d_qk, double flat_scale)
    : cache_(cache),
      format_(cache_format_of(d_qk, cache).value()),
      d_qk_(d_qk),
      flat_scale_(static_cast<float>(flat_scale)) {}

std::uint8_t* CacheTokens::at(std::int64_t page, std::int64_t token, std::int64_t byte) const {
    const auto element = static_cast<std::int64_t>(size_bytes(cache_.dtype));
    std::uint8_t* start = static_cast<std::uint8_t*>(cache_.data) + page * cache_.stride[0] * element;
    if (format_ != CacheFormat::kFp8_584) return start + token * cache_.stride[1] * element + byte;
    if (byte < 576) return start + token * 576 + byte;
    return start + cache_.shape[1] * 576 + token * 8 + (byte - 576);
}

std::vector<double> CacheTokens::read(std::int64_t page, std::int64_t token) const {
    std::vector<double> row;
    row.reserve(d_qk_);
    const Groups groups = groups_of(format_);
    for (std::int64_t i = 0; i < d_qk_; ++i) {
        if (format_ == CacheFormat::kBFloat16) {
            row.push_back(core::bf16_to_float(read_as<std::uint16_t>(at(page, token, 2 * i))));
        } else if (format_ == CacheFormat::kFloat16) {
            row.push_back(core::fp16_to_float(read_as<std::uint16_t>(at(page, token, 2 * i))));
        } else if (format_ == CacheFormat::kFp8Flat) {
            row.push_back(static_cast<float>(e4m3_value(*at(page, token, i)) * flat_scale_));
        } else if (i >= groups.count * groups.size) {
            const std::int64_t byte = groups.rope_byte + 2 * (i - groups.count * groups.size);
            row.push_back(core::bf16_to_float(read_as<std::uint16_t>(at(page, token, byte))));
        } else {
            const std::int64_t group = i / groups.size;
            double scale = 0;
            if (format_ == CacheFormat::kFp8_656) {
                scale = read_as<float>(at(page, token, groups.scale_byte + 4 * group));
            } else {
                const int code = *at(page, token, groups.scale_byte + group);
                scale = code == 255 ? kNan : std::ldexp(1.0, code - 127);
            }
            row.push_back(static_cast<float>(e4m3_value(*at(page, token, i)) * scale));
        }
    }
    return row;
}

void CacheTokens::write(std::int64_t page, std::int64_t token, const std::vector<float>& row, bool power_of_two) const {
    const auto put = [&](std::int64_t byte, auto value) { std::memcpy(at(page, token, byte), &value, sizeof(value)); };
    const auto quotient = [](float x, float scale) { return static_cast<float>(double{x} / double{scale}); };
    const Groups groups = groups_of(format_);
    for (std::int64_t i = groups.count * groups.size; i < d_qk_; ++i) {
        if (format_ == CacheFormat::kFp8Flat) {
            put(i, nearest_e4m3(quotient(row[i], flat_scale_)));
        } else if (groups.count == 0) {
            put(2 * i, core::encode_16bit(cache_.dtype, row[i]));
        } else {
            put(groups.rope_byte + 2 * (i - groups.count * groups.size), core::float_to_bf16(row[i]));
        }
    }
    for (int group = 0; group < groups.count; ++group) {
        double amax = 0;
        for (int i = group * groups.size; i < (group + 1) * groups.size; ++i) {
            if (std::isfinite(row[i])) amax = std::max(amax, std::fabs(double{row[i]}));
        }
        const float scale = group_scale(amax, power_of_two || format_ == CacheFormat::kFp8_584);
        for (int i = group * groups.size; i < (group + 1) * groups.size; ++i) {
            put(i, nearest_e4m3(quotient(row[i], scale)));
        }
        if (format_ == CacheFormat::kFp8_656) {
            put(groups.scale_byte + 4 * group, scale);
        } else {
            put(groups.scale_byte + group, static_cast<std::uint8_t>(127 + std::ilogb(scale)));
        }
    }
    if (format_ == CacheFormat::kFp8_584) put(groups.scale_byte + 7, std::uint8_t{0});
}

double element(const TensorView& view, std::int64_t row, std::int64_t column) {
    const std::int64_t i = row * view.stride[0] + column * view.stride[1];
    if (view.dtype == DType::kFloat32) return static_cast<const float*>(view.data)[i];
    return core::decode_16bit(view.dtype, static_cast<const std::uint16_t*>(view.data)[i]);
}

std::int64_t index_at(const TensorView& view, std::int64_t i) {
    if (view.dtype == DType::kInt64) return static_cast<const std::int64_t*>(view.data)[i * view.stride[0]];
    return static_cast<const std::int32_t*>(view.data)[i * view.stride[0]];
}

void append(const AppendArgs& args) {
    const std::int64_t latent = args.latent.shape[1];
    const std::int64_t rope = args.rope.rank == 0 ? 0 : args.rope.shape[1];
    const CacheTokens cache(args.cache, latent + rope, args.cache_scale);
    for (std::int64_t n = 0; n < args.latent.shape[0]; ++n) {
        const std::int64_t slot = index_at(args.slot_ids, n);
        if (slot < 0) continue;
        std::vector<float> row;
        for (std::int64_t i = 0; i < latent; ++i) row.push_back(static_cast<float>(element(args.latent, n, i)));
        for (std::int64_t i = 0; i < rope; ++i) {
            double value = element(args.rope, n, i);
            if (args.positions.rank != 0) {
                const bool interleaved = args.rotary_style == RotaryStyle::kInterleaved;
                const std::int64_t half = rope / 2;
                const std::int64_t pair = interleaved ? i / 2 : i % half;
                const bool first = interleaved ? i % 2 == 0 : i < half;
                const std::int64_t partner = interleaved ? (first ? i + 1 : i - 1) : (first ? i + half : i - half);
                const std::int64_t position = index_at(args.positions, n);
                const double cosine = element(args.cos_sin, position, pair);
                const double sine = element(args.cos_sin, position, half + pair);
                const double other = element(args.rope, n, partner);
                value = first ? value * cosine - other * sine : value * cosine + other * sine;
            }
            row.push_back(static_cast<float>(value));
        }
        cache.write(slot / args.cache.shape[1], slot % args.cache.shape[1], row, args.power_of_two_scales);
    }
}

namespace {

void put_row(const TensorView& out, std::int64_t n, const std::vector<double>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
        const std::int64_t at = n * out.stride[0] + static_cast<std::int64_t>(i) * out.stride[1];
        if (out.dtype == DType::kFloat32) {
            static_cast<float*>(out.data)[at] = static_cast<float>(row[i]);
        } else {
            static_cast<std::uint16_t*>(out.data)[at] = core::encode_16bit(out.dtype, static_cast<float>(row[i]));
        }
    }
}

}  // namespace

void gather(const GatherArgs& args) {
    const CacheTokens cache(args.cache, args.d_qk, args.cache_scale);
    const std::int64_t page_size = args.cache.shape[1];
    if (args.slot_ids.rank != 0) {
        for (std::int64_t n = 0; n < args.out.shape[0]; ++n) {
            const std::int64_t slot = index_at(args.slot_ids, n);
            put_row(args.out, n,
                    slot < 0 ? std::vector<double>(static_cast<std::size_t>(args.d_qk))
                             : cache.read(slot / page_size, slot % page_size));
        }
        return;
    }
    for (std::int64_t request = 0; request < args.block_table.shape[0]; ++request) {
        const std::int64_t begin = index_at(args.cu_seqlens, request);
        const auto* pages =
            static_cast<const std::int32_t*>(args.block_table.data) + request * args.block_table.stride[0];
        for (std::int64_t token = 0; token < index_at(args.cu_seqlens, request + 1) - begin; ++token) {
            put_row(args.out, begin + token, cache.read(pages[token / page_size], token % page_size));
        }
    }
}

void convert(const ConvertArgs& args) {
    const CacheTokens from(args.source, args.d_qk, args.source_scale);
    const CacheTokens to(args.destination, args.d_qk, args.destination_scale);
    for (std::int64_t page = 0; page < args.source.shape[0]; ++page) {
        for (std::int64_t token = 0; token < args.source.shape[1]; ++token) {
            std::vector<float> row;
            for (const double value : from.read(page, token)) row.push_back(static_cast<float>(value));
            to.write(page, token, row, args.power_of_two_scales);
        }
    }
}

}  // namespace flashmla::reference
