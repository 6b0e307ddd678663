#include "core/divisor.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace flashmla::core {
namespace {

TEST(Divisor, ExactAroundEveryMultipleAndAtTheEnds) {
    constexpr int kMax = std::numeric_limits<int>::max();
    for (const int value :
         {1, 2, 3, 5, 7, 8, 9, 63, 64, 65, 132, 641, 4096, 65'535, 1'000'003, kMax / 2, kMax - 1, kMax}) {
        const Divisor divisor = make_divisor(value);
        for (std::int64_t multiple = 0; multiple <= kMax;
             multiple += std::int64_t{value} * (1 + kMax / value / 5'000)) {
            for (const std::int64_t n : {multiple - 1, multiple, multiple + 1}) {
                if (n < 0 || n > kMax) continue;
                const int dividend = static_cast<int>(n);
                ASSERT_EQ(divisor.quotient(dividend), dividend / value) << dividend << " / " << value;
                ASSERT_EQ(divisor.remainder(dividend), dividend % value) << dividend << " / " << value;
            }
        }
        EXPECT_EQ(divisor.quotient(kMax), kMax / value);
    }
}

}  // namespace
}  // namespace flashmla::core
