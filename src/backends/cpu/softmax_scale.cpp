#include "backends/cpu/softmax_scale.hpp"

#include <cmath>
#include <limits>

#include "core/softmax_state.hpp"

namespace flashmla::backends::cpu {

float scale_to_log2(float scale) {
    const float product = std::abs(scale) * core::kLog2E;
    return std::isinf(product) && std::isfinite(scale) ? std::numeric_limits<float>::max() : product;
}

double scaled(float score, float scale) { return static_cast<double>(score) * std::abs(static_cast<double>(scale)); }

double natural_lse(float max, float sum, float scale) {
    if (sum == 0) return std::numeric_limits<double>::quiet_NaN();  // every logit was -inf
    return scaled(max, scale) + std::log(static_cast<double>(sum));
}

}  // namespace flashmla::backends::cpu
