// The formats against their definition. tests/python/test_float_formats.py compares every code with ml_dtypes.
#include "core/float_formats.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace flashmla::core {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What a sign, a biased exponent and a mantissa mean.
double defined_value(int sign, int exponent, int mantissa, int mantissa_bits, int bias) {
    const double magnitude = exponent == 0
                                 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                 : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
    return sign ? -magnitude : magnitude;
}

TEST(FloatFormats, EveryCodeDecodesToItsDefinition) {
    for (int code = 0; code < 0x10000; ++code) {
        const int sign = code >> 15;
        if (const int exponent = (code >> 7) & 0xff; exponent != 0xff) {
            ASSERT_EQ(bf16_to_float(code), defined_value(sign, exponent, code & 0x7f, 7, 127)) << code;
        }
        if (const int exponent = (code >> 10) & 0x1f; exponent != 0x1f) {
            ASSERT_EQ(fp16_to_float(code), defined_value(sign, exponent, code & 0x3ff, 10, 15)) << code;
        }
    }
    for (int code = 0; code < 0x100; ++code) {
        if ((code & 0x7f) != 0x7f) {
            ASSERT_EQ(e4m3_to_float(code), defined_value(code >> 7, (code >> 3) & 0xf, code & 7, 3, 7)) << code;
        }
        if (code != 0xff) {
            ASSERT_EQ(e8m0_to_float(code), std::ldexp(1.0, code - 127)) << code;
        }
    }
}

TEST(FloatFormats, EveryCodeSurvivesTheRoundTrip) {
    for (int code = 0; code < 0x10000; ++code) {
        const float bf16 = bf16_to_float(code);
        const float fp16 = fp16_to_float(code);
        if (std::isnan(bf16)) {
            ASSERT_TRUE(std::isnan(bf16_to_float(float_to_bf16(bf16)))) << code;
        } else {
            ASSERT_EQ(float_to_bf16(bf16), code);
        }
        if (std::isnan(fp16)) {
            ASSERT_TRUE(std::isnan(fp16_to_float(float_to_fp16(fp16)))) << code;
        } else {
            ASSERT_EQ(float_to_fp16(fp16), code);
        }
    }
    for (int code = 0; code < 0x100; ++code) {
        ASSERT_EQ(float_to_e4m3(e4m3_to_float(code)), code);
        ASSERT_EQ(float_to_e8m0(e8m0_to_float(code)), code);
    }
}

TEST(FloatFormats, TiesGoToEven) {
    EXPECT_EQ(bf16_to_float(float_to_bf16(1 + 0x1p-8f)), 1.0f);
    EXPECT_EQ(bf16_to_float(float_to_bf16(1 + 0x3p-8f)), 1 + 0x4p-8f);
    EXPECT_EQ(bf16_to_float(float_to_bf16(std::nextafter(1 + 0x1p-8f, 2.0f))), 1 + 0x1p-7f);
    EXPECT_EQ(fp16_to_float(float_to_fp16(1 + 0x1p-11f)), 1.0f);
    EXPECT_EQ(fp16_to_float(float_to_fp16(1 + 0x3p-11f)), 1 + 0x4p-11f);
    EXPECT_EQ(fp16_to_float(float_to_fp16(0x1p-25f)), 0.0f);
    EXPECT_EQ(fp16_to_float(float_to_fp16(0x3p-25f)), 0x2p-24f);
    EXPECT_EQ(e4m3_to_float(float_to_e4m3(17.0f)), 16.0f);
    EXPECT_EQ(e4m3_to_float(float_to_e4m3(19.0f)), 20.0f);
    EXPECT_EQ(e4m3_to_float(float_to_e4m3(0x1p-10f)), 0.0f);
}

TEST(FloatFormats, SpecialValues) {
    EXPECT_EQ(bf16_to_float(float_to_bf16(kInf)), kInf);
    EXPECT_EQ(bf16_to_float(float_to_bf16(-std::numeric_limits<float>::max())), -kInf);
    EXPECT_EQ(fp16_to_float(float_to_fp16(-kInf)), -kInf);
    EXPECT_EQ(fp16_to_float(float_to_fp16(65519.0f)), 65504.0f);
    EXPECT_EQ(fp16_to_float(float_to_fp16(65520.0f)), kInf);
    EXPECT_EQ(e4m3_to_float(float_to_e4m3(1e30f)), 448.0f);
    EXPECT_EQ(e4m3_to_float(float_to_e4m3(-kInf)), -448.0f);
    EXPECT_TRUE(std::signbit(bf16_to_float(float_to_bf16(-0.0f))));
    EXPECT_TRUE(std::signbit(fp16_to_float(float_to_fp16(-0.0f))));
    EXPECT_TRUE(std::signbit(e4m3_to_float(float_to_e4m3(-0.0f))));
    // A NaN whose payload lies only in the bits that rounding drops must not become infinity.
    for (float nan : {kNan, -kNan, float_from_bits(0x7f800001), float_from_bits(0xff80ffff)}) {
        EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(nan))));
        EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(nan))));
        EXPECT_TRUE(std::isnan(e4m3_to_float(float_to_e4m3(nan))));
        EXPECT_TRUE(std::isnan(e8m0_to_float(float_to_e8m0(nan))));
    }
    for (float outside : {0.0f, -0.0f, -1.0f, kInf, 0x1.8p127f}) {
        EXPECT_TRUE(std::isnan(e8m0_to_float(float_to_e8m0(outside)))) << outside;
    }
    EXPECT_EQ(e8m0_to_float(float_to_e8m0(0x1p-149f)), 0x1p-127f);
}

static_assert(float_to_bf16(1.0f) == 0x3f80 && bf16_to_float(0x3f80) == 1.0f);
static_assert(float_to_fp16(1.0f) == 0x3c00 && fp16_to_float(0x3c00) == 1.0f);
static_assert(float_to_e4m3(1.0f) == 0x38 && e4m3_to_float(0x38) == 1.0f);
static_assert(float_to_e8m0(1.0f) == 127 && e8m0_to_float(127) == 1.0f);

TEST(FloatFormats, UnitRoundoffIsHalfTheSpacingAboveOne) {
    EXPECT_EQ(unit_roundoff(DType::kBFloat16), (bf16_to_float(0x3f81) - 1) / 2);
    EXPECT_EQ(unit_roundoff(DType::kFloat16), (fp16_to_float(0x3c01) - 1) / 2);
    EXPECT_EQ(unit_roundoff(DType::kFloat32), static_cast<double>(std::numeric_limits<float>::epsilon()) / 2);
    EXPECT_EQ(underflow_error(DType::kFloat16), fp16_to_float(1) / 2);
}

}  // namespace
}  // namespace flashmla::core
