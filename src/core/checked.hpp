// Products and sums that notice when they do not fit.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

namespace flashmla::core {

inline std::optional<std::int64_t> checked_product(std::initializer_list<std::int64_t> factors) {
    std::int64_t product = 1;
    for (std::int64_t factor : factors) {
        if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
    }
    return product;
}

inline std::optional<std::int64_t> checked_sum(std::int64_t a, std::int64_t b) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
    return sum;
}

}  // namespace flashmla::core
