// A running sequence of seeded random numbers, for code that draws them one after the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/random.hpp"

namespace flashmla::reference {

class Random {
public:
    explicit Random(std::uint64_t seed) : seed_(seed) {}

    std::uint64_t bits() { return core::random_bits(seed_, index_++); }

    // Uniform in [low, high], both included.
    std::int64_t between(std::int64_t low, std::int64_t high) {
        const auto count = static_cast<std::uint64_t>(high - low + 1);
        return low + static_cast<std::int64_t>(core::random_below(seed_, index_++, count));
    }

    bool chance(double probability) { return core::random_unit(seed_, index_++) < probability; }

    template <class T, std::size_t N>
    T pick(const T (&choices)[N]) {
        return choices[core::random_below(seed_, index_++, N)];
    }

    // Standard normal, magnitude at most 4.33.
    float normal() {
        static const core::NormalQuantiles quantiles;
        if (left_ == 0) {
            pool_ = bits();
            left_ = 4;
        }
        const auto code = static_cast<std::uint16_t>(pool_);
        pool_ >>= 16;
        --left_;
        return quantiles.quantile(code);
    }

private:
    std::uint64_t seed_;
    std::uint64_t index_ = 0;
    std::uint64_t pool_ = 0;  // bits of normal() not yet used
    int left_ = 0;
};

}  // namespace flashmla::reference
