// The softmax scale of a call, as backends take it.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace flashmla::api {

// Of any arguments that have softmax_scale and has_softmax_scale; the default is d_qk ** -0.5. A double beyond float's
// range becomes an infinity; NaN stays NaN. Any scale is honoured.
template <class Args>
float scale_or_default(const Args& args, std::int64_t d_qk) {
    const double scale = args.has_softmax_scale ? args.softmax_scale : 1.0 / std::sqrt(static_cast<double>(d_qk));
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    if (std::abs(scale) > std::numeric_limits<float>::max()) return scale > 0 ? kInfinity : -kInfinity;
    return static_cast<float>(scale);
}

}  // namespace flashmla::api
