// Seeded random numbers that are functions of (seed, index) alone: threads may fill any part of a tensor in any order,
// and the same seed gives the same tensor everywhere.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace flashmla::core {

// 64 well-mixed bits for each (seed, index): a Weyl sequence through the murmur3-style finalizer of SplitMix64.
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
    std::uint64_t x = seed * 0xd1342543de82ef95ULL + (index + 1) * 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

// Uniform in [0, n), n >= 1. The bias of at most n / 2^64 does not matter here.
constexpr std::uint64_t random_below(std::uint64_t seed, std::uint64_t index, std::uint64_t n) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(random_bits(seed, index)) * n) >> 64);
}

// Uniform in (0, 1).
constexpr double random_unit(std::uint64_t seed, std::uint64_t index) {
    return (static_cast<double>(random_bits(seed, index) >> 12) + 0.5) * 0x1p-52;
}

// Standard normal values as 65,536 equally likely quantiles (largest magnitude 4.33): 16 random bits make one value, so
// filling gigabytes costs about a nanosecond a value.
class NormalQuantiles {
public:
    NormalQuantiles() : values_(std::size_t{1} << 16) {
        constexpr int kHalf = 1 << 15;
        double x = -4.4;
        for (int i = 0; i < kHalf; ++i) {
            const double p = (i + 0.5) / (2.0 * kHalf);
            for (int step = 0; step < 8; ++step) {  // Newton from the previous quantile
                const double error = 0.5 * std::erfc(-x * 0.70710678118654752440) - p;
                x -= error / (0.39894228040143267794 * std::exp(-0.5 * x * x));
            }
            values_[i] = static_cast<float>(x);
            values_[2 * kHalf - 1 - i] = static_cast<float>(-x);
        }
    }

    // Value number `index` of stream `seed`.
    float operator()(std::uint64_t seed, std::uint64_t index) const {
        return values_[(random_bits(seed, index >> 2) >> (16 * (index & 3))) & 0xffff];
    }

    float quantile(std::uint16_t bits) const { return values_[bits]; }

private:
    std::vector<float> values_;
};

}  // namespace flashmla::core
