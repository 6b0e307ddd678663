// Division of non-negative ints by a number known beforehand, as a multiplication: a GPU divides in some hundred
// cycles, which counts where a launch finds its work.
#pragma once

#include <cstdint>

#include "core/host_device.hpp"

namespace flashmla::core {

struct Divisor {
    int value = 1;
    std::uint32_t multiplier = std::uint32_t{1} << 31;  // ceil(2^shift / value)
    int shift = 31;                                     // 31 + ceil(log2(value))

    // floor(n / value), exact for n >= 0: multiplier * value exceeds 2^shift by less than 2^(shift - 31), and n < 2^31.
    FLASHMLA_HD int quotient(int n) const {
        return static_cast<int>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(n)) * multiplier >> shift);
    }
    FLASHMLA_HD int remainder(int n) const { return n - quotient(n) * value; }
};

FLASHMLA_HD Divisor make_divisor(int value) {  // value >= 1
    Divisor divisor;
    divisor.value = value;
    while (std::int64_t{1} << (divisor.shift - 31) < value) ++divisor.shift;
    const std::uint64_t power = std::uint64_t{1} << divisor.shift;
    divisor.multiplier =
        static_cast<std::uint32_t>((power + static_cast<std::uint64_t>(value) - 1) / static_cast<std::uint64_t>(value));
    return divisor;
}

}  // namespace flashmla::core
