// The vector functions of the cache kernels against the scalar formats, on every path that this machine can run and
// with the 16 lanes of AVX-512 emulated.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/cache_quantize.hpp"
#include "backends/cpu/isa_plain.hpp"
#include "core/cpu_isa.hpp"
#include "cpu/paths.hpp"
#include "reference/cache.hpp"
#include "support/cache_case.hpp"

namespace flashmla::cpu_tests {
namespace {

namespace cpu = backends::cpu;

struct Tag {};

const cpu::CacheKernels& kernels_of(const std::string& path) {
    static constexpr cpu::CacheKernels kEmulated = cpu::make_cache_kernels<cpu::Plain<Tag, 16>>();
    if (path == "emulated_avx512") return kEmulated;
    const ForcedIsa forced(path.c_str());
    return *cpu::select_cache_kernels().value();
}

std::vector<std::string> all_paths() {
    std::vector<std::string> paths = test::native_paths();
    paths.push_back("emulated_avx512");
    return paths;
}

class CacheValues : public testing::TestWithParam<std::string> {
protected:
    const cpu::CacheKernels& kernels_ = kernels_of(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Matches, CacheValues, testing::ValuesIn(all_paths()),
                         [](const auto& info) { return info.param; });

// fp32 patterns: every exponent with mantissas around the rounding boundaries of e4m3, both signs, NaN, infinity.
std::vector<float> patterns() {
    std::vector<float> list;
    for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
        for (std::uint32_t eighth = 0; eighth < 16; ++eighth) {
            for (const std::uint32_t offset : {0u, 1u, 0x7ffffu, 0x3ffffu}) {
                const std::uint32_t bits = exponent << 23 | ((eighth << 19) + offset);
                list.push_back(core::float_from_bits(bits));
                list.push_back(core::float_from_bits(bits | 0x80000000u));
            }
        }
    }
    return list;
}

constexpr float kScales[] = {1.0f,      1e-4f,    0x1p-13f, 0x1p8f,   0.7f,     3.1f,
                             0x1p-126f, 0x1p-97f, 0x1p98f,  0x1p113f, 0x1p127f, 7.6e35f};

// Values of one type at an odd address.
class TypedValues {
public:
    TypedValues(DType dtype, const std::vector<float>& values) : dtype_(dtype), values_(values) {
        bytes_.resize(1 + values.size() * size_bytes(dtype));
        for (std::size_t i = 0; i < values.size(); ++i) {
            std::uint8_t* to = &bytes_[1 + i * size_bytes(dtype)];
            if (dtype == DType::kFloat32) {
                core::store_unaligned(to, values[i]);
            } else {
                core::store_unaligned(to, core::encode_16bit(dtype, values[i]));
                values_[i] = core::decode_16bit(dtype, core::load_unaligned<std::uint16_t>(to));
            }
        }
    }
    DType dtype() const { return dtype_; }
    const std::uint8_t* data() const { return bytes_.data() + 1; }
    int count() const { return static_cast<int>(values_.size()); }
    const std::vector<float>& values() const { return values_; }

private:
    DType dtype_;
    std::vector<float> values_;
    std::vector<std::uint8_t> bytes_;
};

void expect_table_search(const cpu::CacheKernels& kernels, const TypedValues& from, float scale) {
    std::vector<std::uint8_t> codes(from.values().size() + 1, 0xee);
    std::vector<std::uint8_t> by_steps = codes;
    kernels.quantize(from.dtype(), from.data(), from.count(), {.value = scale}, codes.data());
    kernels.quantize(from.dtype(), from.data(), from.count(), cpu::flat_scale(kernels, scale), by_steps.data());
    for (int i = 0; i < from.count(); ++i) {
        const auto quotient = static_cast<float>(double{from.values()[i]} / double{scale});
        ASSERT_EQ(codes[i], reference::nearest_e4m3(quotient))
            << name(from.dtype()) << ' ' << from.values()[i] << " / " << scale << ", " << i << " of " << from.count();
    }
    ASSERT_EQ(codes[from.count()], 0xee);
    ASSERT_EQ(codes, by_steps) << scale;
}

// Runs with NaN, infinity or values past 448 take another way than runs without; a run that is short takes no vector.
TEST_P(CacheValues, QuantizeIsTheTableSearchOfAnFp32Quotient) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
        std::vector<float> all = patterns();
        if (dtype != DType::kFloat32) {
            all.resize(65536);
            for (std::size_t i = 0; i < all.size(); ++i)
                all[i] = core::decode_16bit(dtype, static_cast<std::uint16_t>(i));
        }
        for (const float scale : kScales) {
            std::vector<float> within;
            for (const float value : all) {
                if (std::fabs(value / scale) <= 448) within.push_back(value);
            }
            expect_table_search(kernels_, TypedValues(dtype, all), scale);
            expect_table_search(kernels_, TypedValues(dtype, within), scale);
            within.resize(std::min<std::size_t>(within.size(), 77));
            expect_table_search(kernels_, TypedValues(dtype, within), scale);
        }
    }
}

// Scales whose significands are random, or within a few units of those that make quotients fall beside a boundary.
std::vector<float> awkward_scales() {
    std::vector<float> scales;
    std::uint32_t state = 1;
    for (const std::uint32_t exponent : {114u, 127u, 135u, 38u, 216u, 9u, 244u}) {
        for (std::uint32_t i = 0; i < 40; ++i) {
            state = state * 1664525u + 1013904223u;
            const std::uint32_t near_boundary = ((i << 20) + (state >> 28) - 8) & 0x7fffff;
            scales.push_back(core::float_from_bits(exponent << 23 | (i % 2 == 0 ? state >> 9 : near_boundary)));
        }
    }
    return scales;
}

TEST_P(CacheValues, ValuesBesideTheBoundariesBetweenCodesAtAwkwardScales) {
    for (const float scale : awkward_scales()) {
        std::vector<float> values;
        for (std::uint8_t code = 0; code < 126; ++code) {
            const double boundary = (reference::e4m3_value(code) + reference::e4m3_value(code + 1)) / 2;
            const std::uint32_t nearest = core::float_bits(static_cast<float>(boundary * double{scale}));
            for (std::uint32_t bits = nearest - 3; bits <= nearest + 3; ++bits) {
                values.push_back(core::float_from_bits(bits));
                values.push_back(-core::float_from_bits(bits));
            }
        }
        for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
            const TypedValues from(dtype, values);
            std::vector<std::uint8_t> codes(values.size());
            kernels_.quantize(dtype, from.data(), from.count(), cpu::flat_scale(kernels_, scale), codes.data());
            for (std::size_t i = 0; i < values.size(); ++i) {
                ASSERT_EQ(codes[i], core::quantize(from.values()[i], scale))
                    << name(dtype) << ' ' << from.values()[i] << " / " << scale;
            }
        }
    }
}

TEST_P(CacheValues, EveryGroupHasTheScaleAndTheCodesOfItsOwnValues) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    enum class Row { kPlain, kSmallOnes, kFarApart, kSpoiled };
    // Powers of two of the groups' magnitudes: different ones, and some near both ends of fp32.
    constexpr int kNear[] = {3, -9, 0, 7, -30, 12, -4, 1};
    constexpr int kFar[] = {3, -9, 0, 127, -30, 102, 12, -126};
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
        for (const int group : {128, 64, 20}) {
            for (const Row kind : {Row::kPlain, Row::kSmallOnes, Row::kFarApart, Row::kSpoiled}) {
                const int* powers = kind == Row::kFarApart ? kFar : kNear;
                std::vector<float> row(static_cast<std::size_t>(8 * group));
                for (int i = 0; i < 8 * group; ++i) {
                    const float fraction = 0.01f + static_cast<float>(i * 37 % 101) / 128;
                    row[i] = std::ldexp(i % 2 == 0 ? fraction : -fraction, powers[i / group]);
                    if (dtype == DType::kFloat16) row[i] = std::min(60000.0f, std::max(-60000.0f, row[i]));
                    if (kind == Row::kSmallOnes && i % 11 == 7) row[i] = std::ldexp(row[i], -i % 20);
                    if (kind == Row::kSmallOnes && i % 23 == 9) row[i] = 0;
                    if (kind == Row::kSpoiled && i % (3 * group) == 5) row[i] = std::nanf("");
                    if (kind == Row::kSpoiled && i % (2 * group) == 9) row[i] = -kInf;
                }
                const TypedValues from(dtype, row);
                for (const bool power_of_two : {true, false}) {
                    float scales[cpu::kMaxGroups];
                    std::vector<std::uint8_t> codes(row.size() + 1, 0xee);
                    kernels_.quantize_groups({dtype, from.data(), 8, group, power_of_two}, scales, codes.data());
                    for (int g = 0; g < 8; ++g) {
                        float amax = 0;
                        for (int i = g * group; i < (g + 1) * group; ++i) {
                            amax = core::larger_finite(amax, from.values()[i]);
                        }
                        ASSERT_EQ(scales[g], core::quantizer_scale(amax, power_of_two))
                            << name(dtype) << " group " << g;
                        for (int i = g * group; i < (g + 1) * group; ++i) {
                            ASSERT_EQ(codes[i], core::quantize(from.values()[i], scales[g]))
                                << name(dtype) << ' ' << from.values()[i] << " / " << scales[g];
                        }
                    }
                    ASSERT_EQ(codes.back(), 0xee);
                }
            }
        }
    }
}

TEST_P(CacheValues, EveryCodeAtEveryScaleComesBack) {
    std::vector<std::uint8_t> codes(256);
    for (int code = 0; code < 256; ++code) codes[code] = static_cast<std::uint8_t>(code);
    for (int exponent = -13; exponent <= 8; ++exponent) {
        for (const float fraction : {1.0f, 1.3f, 1.9999f}) {
            const float scale = std::ldexp(fraction, exponent);
            std::vector<float> values(256);
            std::vector<std::uint8_t> again(256);
            auto* bytes = reinterpret_cast<std::uint8_t*>(values.data());
            kernels_.dequantize(codes.data(), 256, scale, DType::kFloat32, bytes);
            kernels_.quantize(DType::kFloat32, bytes, 256, {.value = scale}, again.data());
            for (int code = 0; code < 256; ++code) {
                const double exact = reference::e4m3_value(codes[code]) * double{scale};
                if (std::isnan(exact)) {
                    ASSERT_TRUE(std::isnan(values[code])) << code;
                } else {
                    ASSERT_EQ(values[code], static_cast<float>(exact)) << code;
                }
                ASSERT_EQ(again[code], codes[code]) << "scale " << scale;
            }
        }
    }
}

// To 16 bits as the fp32 product rounds, at any count and alignment.
TEST_P(CacheValues, DequantizesTo16BitsWithOneMoreRounding) {
    std::vector<std::uint8_t> codes(256);
    for (int code = 0; code < 256; ++code) codes[code] = static_cast<std::uint8_t>(code * 101);
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
        for (const float scale : kScales) {
            for (const int count : {256, 77, 1}) {
                std::vector<std::uint8_t> bytes(2 * 256 + 2, 0xee);
                kernels_.dequantize(codes.data(), count, scale, dtype, &bytes[1]);
                for (int i = 0; i < count; ++i) {
                    const float want = core::e4m3_to_float(codes[i]) * scale;
                    const std::uint16_t got = core::load_unaligned<std::uint16_t>(&bytes[2 * i + 1]);
                    if (std::isnan(want)) {
                        ASSERT_TRUE(std::isnan(core::decode_16bit(dtype, got)));
                    } else {
                        ASSERT_EQ(got, core::encode_16bit(dtype, want)) << want;
                    }
                }
                ASSERT_EQ(bytes[2 * count + 1], 0xee);
            }
        }
    }
}

TEST_P(CacheValues, WidensAndNarrowsEvery16BitCodeAtAnyCountAndAlignment) {
    std::vector<std::uint8_t> bytes(2 * 65536 + 1);
    std::vector<std::uint8_t> again(bytes.size());
    std::vector<float> values(65536);
    for (int code = 0; code < 65536; ++code)
        core::store_unaligned(&bytes[2 * code + 1], static_cast<std::uint16_t>(code));
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
        for (const int count : {65536, 65535, 37, 1, 0}) {
            auto* floats = reinterpret_cast<std::uint8_t*>(values.data());
            kernels_.cast(dtype, &bytes[1], count, DType::kFloat32, floats);
            std::fill(again.begin(), again.end(), 0xee);
            kernels_.cast(DType::kFloat32, floats, count, dtype, &again[1]);
            for (int i = 0; i < count; ++i) {
                const float want = core::decode_16bit(dtype, static_cast<std::uint16_t>(i));
                if (std::isnan(want)) {
                    ASSERT_TRUE(std::isnan(values[i])) << i;
                    continue;
                }
                ASSERT_EQ(core::float_bits(values[i]), core::float_bits(want)) << i;
                ASSERT_EQ(core::load_unaligned<std::uint16_t>(&again[2 * i + 1]), i);
            }
            if (count < 65536) {
                ASSERT_EQ(again[2 * count + 1], 0xee);
            }
        }
    }
}

TEST_P(CacheValues, NarrowsFp32AsTheFormatsDo) {
    const std::vector<float> values = patterns();
    std::vector<std::uint8_t> bytes(2 * values.size());
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
        kernels_.cast(DType::kFloat32, reinterpret_cast<const std::uint8_t*>(values.data()),
                      static_cast<int>(values.size()), dtype, bytes.data());
        for (std::size_t i = 0; i < values.size(); ++i) {
            const std::uint16_t got = core::load_unaligned<std::uint16_t>(&bytes[2 * i]);
            if (std::isnan(values[i])) {
                ASSERT_TRUE(std::isnan(core::decode_16bit(dtype, got)));
            } else {
                ASSERT_EQ(got, core::encode_16bit(dtype, values[i])) << values[i];
            }
        }
    }
}

TEST_P(CacheValues, CastsEveryCodeBetweenThe16BitTypes) {
    std::vector<std::uint8_t> from(2 * 65536);
    std::vector<std::uint8_t> to(2 * 65536);
    for (int code = 0; code < 65536; ++code) core::store_unaligned(&from[2 * code], static_cast<std::uint16_t>(code));
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
        const DType other = dtype == DType::kBFloat16 ? DType::kFloat16 : DType::kBFloat16;
        kernels_.cast(dtype, from.data(), 65536, other, to.data());
        for (int code = 0; code < 65536; ++code) {
            const float value = core::decode_16bit(dtype, static_cast<std::uint16_t>(code));
            const std::uint16_t got = core::load_unaligned<std::uint16_t>(&to[2 * code]);
            if (std::isnan(value)) {
                ASSERT_TRUE(std::isnan(core::decode_16bit(other, got)));
            } else {
                ASSERT_EQ(got, core::encode_16bit(other, value)) << value;
            }
        }
    }
}

}  // namespace
}  // namespace flashmla::cpu_tests
