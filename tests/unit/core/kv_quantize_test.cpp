// The quantiser against the oracle, which searches tables, and at its edges.
#include "core/kv_quantize.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "reference/cache.hpp"
#include "support/cache_case.hpp"

namespace flashmla::core {
namespace {

TEST(KvQuantize, ScaleAtItsEdges) {
    const float least = 1e-4f;
    EXPECT_EQ(quantizer_scale(0, false), least);
    EXPECT_EQ(quantizer_scale(0, true), 0x1p-13f);
    EXPECT_EQ(quantizer_scale(448 * 0x1p-13f, true), 0x1p-13f);
    EXPECT_EQ(quantizer_scale(std::nextafter(448 * 0x1p-13f, 1.0f), true), 0x1p-12f);
    EXPECT_EQ(quantizer_scale(448, false), 1.0f);
    EXPECT_EQ(quantizer_scale(448, true), 1.0f);
    EXPECT_EQ(quantizer_scale(449, true), 2.0f);
    EXPECT_EQ(quantizer_scale(0x1p-140f, false), least);
    const float largest = std::numeric_limits<float>::max();
    EXPECT_EQ(quantizer_scale(largest, false), largest / 448);
    EXPECT_EQ(quantizer_scale(largest, true), 0x1p120f);
    for (int exponent = -14; exponent <= 9; ++exponent) {
        for (const float fraction : {1.0f, std::nextafter(1.0f, 2.0f), 1.5f, std::nextafter(2.0f, 1.0f)}) {
            const float amax = 448 * std::ldexp(fraction, exponent);
            for (const bool power_of_two : {false, true}) {
                ASSERT_EQ(quantizer_scale(amax, power_of_two), reference::group_scale(amax, power_of_two)) << amax;
            }
        }
    }
}

TEST(KvQuantize, EveryScaleOf584HasACode) {
    for (int exponent = -13; exponent <= 120; ++exponent) {
        const float scale = std::ldexp(1.0f, exponent);
        ASSERT_EQ(e8m0_to_float(power_of_two_to_e8m0(scale)), scale);
    }
}

TEST(KvQuantize, AllCodesComeBackAtAllScales) {
    for (int exponent = -13; exponent <= 8; ++exponent) {
        const float scale = std::ldexp(1.0f, exponent);
        for (int code = 0; code < 256; ++code) {
            const auto byte = static_cast<std::uint8_t>(code);
            ASSERT_EQ(quantize(e4m3_to_float(byte) * scale, scale), byte) << "scale 2^" << exponent;
        }
    }
}

TEST(KvQuantize, SaturatesAndKeepsSignsAndNan) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    EXPECT_EQ(quantize(449, 1), 0x7e);
    EXPECT_EQ(quantize(-1e30f, 1), 0xfe);
    EXPECT_EQ(quantize(kInf, 0.5f), 0x7e);
    EXPECT_EQ(quantize(-kInf, 0.5f), 0xfe);
    EXPECT_EQ(quantize(-0.0f, 1), 0x80);
    EXPECT_EQ(quantize(0x1p-10f, 1), 0x00);  // half a subnormal: to even
    EXPECT_EQ(quantize(3 * 0x1p-10f, 1), 0x02);
    EXPECT_EQ(quantize(-0x1p-9f, 1), 0x81);
    EXPECT_EQ(quantize(std::numeric_limits<float>::quiet_NaN(), 1) & 0x7f, 0x7f);
    // The division decides, not a product with the reciprocal: the two differ for some of these.
    int differ = 0;
    for (int i = 1; i < 4000; ++i) {
        const float scale = 0.7f;
        const float x = static_cast<float>(i) * 0.0371f;
        const auto exact = static_cast<float>(double{x} / double{scale});
        ASSERT_EQ(quantize(x, scale), reference::nearest_e4m3(exact));
        differ += x * (1 / scale) != exact ? 1 : 0;
    }
    EXPECT_GT(differ, 0);
}

TEST(KvQuantize, WholeRecordsMatchTheOracleToTheByte) {
    for (const test::FormatCase& format : test::kFormatCases) {
        for (const bool power_of_two : {false, true}) {
            for (const std::int64_t page_size : {1, 3, 64}) {
                test::Pool pool({.format = format.format, .d_qk = format.d_qk, .num_pages = 2, .page_size = page_size});
                test::Pool wanted = pool;
                const std::int64_t tokens = pool.slots();
                test::Rows rows(DType::kFloat32, tokens, format.d_qk, 0);
                rows.fill(static_cast<std::uint64_t>(page_size), false);
                const TensorView cache = pool.view();
                const reference::CacheTokens oracle(wanted.view(), format.d_qk, 0.3);
                const auto element = static_cast<std::int64_t>(size_bytes(cache.dtype));
                for (std::int64_t slot = 0; slot < tokens; ++slot) {
                    std::vector<float> row;
                    for (std::int64_t i = 0; i < format.d_qk; ++i) row.push_back(rows.get(slot, i));
                    auto* page = static_cast<std::uint8_t*>(cache.data) + slot / page_size * cache.stride[0] * element;
                    encode_record(
                        format.format, row.data(), static_cast<int>(format.d_qk), power_of_two, 0.3f,
                        record_parts(format.format, page, slot % page_size, page_size, cache.stride[1] * element));
                    oracle.write(slot / page_size, slot % page_size, row, power_of_two);
                }
                ASSERT_TRUE(pool.bytes() == wanted.bytes()) << name(format.format) << " page " << page_size;
            }
        }
    }
}

TEST(KvQuantize, ErrorOfAGroupStaysWithinHalfASpacing) {
    test::Rows rows(DType::kFloat32, 200, 128, 0);
    rows.fill(6);
    for (std::int64_t row = 0; row < 200; ++row) {
        float amax = 0;
        for (std::int64_t i = 0; i < 128; ++i) amax = larger_finite(amax, rows.get(row, i));
        for (const bool power_of_two : {false, true}) {
            const float scale = quantizer_scale(amax, power_of_two);
            for (std::int64_t i = 0; i < 128; ++i) {
                const double x = rows.get(row, i);
                const double back = e4m3_to_float(quantize(rows.get(row, i), scale)) * double{scale};
                // 2^-4 of the value, 2^-10 of the scale below the normal range; the quotient itself rounds once.
                ASSERT_LE(std::fabs(back - x), std::max(0x1p-4 * std::fabs(x), 0x1p-10 * scale) * (1 + 0x1p-18)) << x;
            }
        }
    }
}

}  // namespace
}  // namespace flashmla::core
