// What a handful of timings says.
#pragma once

#include <algorithm>
#include <vector>

namespace flashmla::bench {

// Of a non-empty sample; the upper one of the two middle values when their number is even.
inline double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

inline double smallest(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }
inline double largest(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

}  // namespace flashmla::bench
