// The 64-bit quotient that avoids a GPU's long division where both values fit 32 bits.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>

#include "core/host_device.hpp"

namespace flashmla::test {
namespace {

// q = a / b by definition: q * b <= a < (q + 1) * b, without overflow.
void expect_quotient(std::int64_t a, std::int64_t b) {
    const std::int64_t q = core::quotient(a, b);
    ASSERT_GE(q, 0) << a << " / " << b;
    ASSERT_LE(q, a) << a << " / " << b;
    ASSERT_TRUE(q == 0 || b <= a / q) << a << " / " << b << " gave " << q;
    ASSERT_LT(a - q * b, b) << a << " / " << b << " gave " << q;
}

TEST(Quotient, HoldsAroundTheLimitsOf32Bits) {
    constexpr std::int64_t kPower32 = std::int64_t{1} << 32;
    constexpr std::int64_t kPower31 = std::int64_t{1} << 31;
    constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t around : {std::int64_t{3}, kPower31, kPower32, 3 * kPower32, kMax - 4}) {
        for (std::int64_t a = around - 3; a <= around + 3; ++a) {
            for (const std::int64_t b_around : {std::int64_t{4}, kPower31, kPower32, kMax - 4}) {
                for (std::int64_t b = b_around - 3; b <= b_around + 3; ++b) expect_quotient(a, b);
            }
        }
    }
    EXPECT_EQ(core::quotient(kPower32 - 1, 1), kPower32 - 1);  // above what a signed 32-bit quotient holds
    EXPECT_EQ(core::quotient(kPower32, kPower32), 1);
    EXPECT_EQ(core::quotient(5, kPower32), 0);
    EXPECT_EQ(core::quotient(kMax, 1), kMax);
}

TEST(Quotient, HoldsForValuesOfEverySize) {
    std::mt19937_64 random(11);
    for (int i = 0; i < 100'000; ++i) {
        const auto a = static_cast<std::int64_t>(random() >> (1 + random() % 63));
        const auto b = static_cast<std::int64_t>(random() >> (1 + random() % 62));
        expect_quotient(a, b == 0 ? 1 : b);
    }
}

}  // namespace
}  // namespace flashmla::test
