// The vector functions of the cache kernels against the scalar formats, on every path that this machine can run and
// with the 16 lanes of AVX-512 emulated.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backends/cpu/cache_values.hpp"
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

TEST_P(CacheValues, QuantizeIsTheTableSearchOfAnFp32Quotient) {
    const std::vector<float> values = patterns();
    const int count = static_cast<int>(values.size());
    std::vector<std::uint8_t> codes(values.size());
    for (const float scale : {1.0f, 1e-4f, 0x1p-13f, 0x1p8f, 0.7f, 3.1f, 0x1p-126f, 0x1p127f, 7.6e35f}) {
        kernels_.quantize(values.data(), count, scale, codes.data());
        for (int i = 0; i < count; ++i) {
            const auto quotient = static_cast<float>(double{values[i]} / double{scale});
            ASSERT_EQ(codes[i], reference::nearest_e4m3(quotient)) << values[i] << " / " << scale;
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
            kernels_.dequantize(codes.data(), 256, scale, values.data());
            kernels_.quantize(values.data(), 256, scale, again.data());
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

TEST_P(CacheValues, WidensAndNarrowsEvery16BitCodeAtAnyCountAndAlignment) {
    std::vector<std::uint8_t> bytes(2 * 65536 + 1);
    std::vector<std::uint8_t> again(bytes.size());
    std::vector<float> values(65536);
    for (int code = 0; code < 65536; ++code)
        core::store_unaligned(&bytes[2 * code + 1], static_cast<std::uint16_t>(code));
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
        for (const int count : {65536, 65535, 37, 1, 0}) {
            kernels_.widen(dtype, &bytes[1], count, values.data());
            std::fill(again.begin(), again.end(), 0xee);
            kernels_.narrow(dtype, values.data(), count, &again[1]);
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
        kernels_.narrow(dtype, values.data(), static_cast<int>(values.size()), bytes.data());
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

TEST_P(CacheValues, LargestFinitePassesOverNanAndInfinity) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    for (const int count : {0, 1, 7, 64, 67}) {
        std::vector<float> values(static_cast<std::size_t>(count), -0.25f);
        EXPECT_EQ(kernels_.largest_finite(values.data(), count), count == 0 ? 0.0f : 0.25f);
        for (int i = 0; i < count; ++i) {
            values[i] = i % 3 == 0 ? -kInf : i % 3 == 1 ? std::nanf("") : -1.0f - static_cast<float>(i);
        }
        float want = 0;
        for (int i = 2; i < count; i += 3) want = 1.0f + static_cast<float>(i);
        EXPECT_EQ(kernels_.largest_finite(values.data(), count), want) << count;
    }
    const float largest = std::numeric_limits<float>::max();
    const std::vector<float> huge(64, -largest);
    EXPECT_EQ(kernels_.largest_finite(huge.data(), 64), largest);
}

}  // namespace
}  // namespace flashmla::cpu_tests
