// Random normal data by the gigabyte: a table of quantiles, encoded once.
#pragma once

#include <cstdint>
#include <vector>

#include "core/float_formats.hpp"
#include "core/random.hpp"

namespace flashmla::cli {

// The 65,536 quantiles of a normal distribution as bf16 or fp16 codes.
class NormalCodes {
public:
    NormalCodes(DType dtype, double deviation) : codes_(std::size_t{1} << 16) {
        const core::NormalQuantiles normal;
        for (std::size_t i = 0; i < codes_.size(); ++i) {
            const auto value = static_cast<float>(deviation * normal.quantile(static_cast<std::uint16_t>(i)));
            codes_[i] = core::encode_16bit(dtype, value);
        }
    }

    // Values [first, first + n) of a stream; both multiples of 4.
    void fill(std::uint64_t seed, std::uint64_t first, std::uint64_t n, std::uint16_t* out) const {
        for (std::uint64_t i = 0; i < n; i += 4) {
            const std::uint64_t bits = core::random_bits(seed, (first + i) / 4);
            out[i] = codes_[bits & 0xffff];
            out[i + 1] = codes_[bits >> 16 & 0xffff];
            out[i + 2] = codes_[bits >> 32 & 0xffff];
            out[i + 3] = codes_[bits >> 48];
        }
    }

private:
    std::vector<std::uint16_t> codes_;
};

}  // namespace flashmla::cli
