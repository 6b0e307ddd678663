// A small seeded generator whose numbers are the same on every platform (the standard distributions are not).
#pragma once

#include <cstdint>

namespace flashmla::reference {

class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    // SplitMix64: a counter through a 64-bit mixing function.
    std::uint64_t bits() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }

    // Uniform in [low, high], both included.
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
    }

    bool chance(double probability) { return static_cast<double>(bits() >> 11) * 0x1p-53 < probability; }

    template <class T, std::size_t N>
    T pick(const T (&choices)[N]) {
        return choices[bits() % N];
    }

    // Mean 0, standard deviation 1, close to normal: the sum of four 16-bit uniforms, so that the tails end at 3.46.
    float normal() {
        const std::uint64_t z = bits();
        const auto sum = static_cast<std::int32_t>((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
        constexpr float kDeviation = 37837.22f;  // 2^16 / sqrt(3)
        return static_cast<float>(sum - 2 * 0xffff) / kDeviation;
    }

private:
    std::uint64_t state_;
};

}  // namespace flashmla::reference
