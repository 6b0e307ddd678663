#include "reference/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flashmla::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Score score(const std::vector<double>& query, const std::vector<double>& key, double scale) {
    double sum = 0;
    double magnitude = 0;
    for (std::size_t i = 0; i < query.size(); ++i) {
        const double product = query[i] * key[i];
        sum += product;
        magnitude += std::abs(product);
    }
    return {scale * sum, std::abs(scale) * magnitude};
}

// No exponential overflows: a sink of +inf gives 0, one of -inf 1.
double sink_factor(const AttentionRow& row, double lse) { return row.sink ? 1 / (1 + std::exp(*row.sink - lse)) : 1; }

}  // namespace

RowResult attend_row(const AttentionRow& row) {
    RowResult result{.scores = {},
                     .max_logit = -kInfinity,
                     .lse = kInfinity,
                     .sink_factor = 1,
                     .mean = std::vector<double>(row.d_v),
                     .out = std::vector<double>(row.d_v)};
    if (row.keys == 0) return result;

    std::vector<double> key;
    result.scores.reserve(static_cast<std::size_t>(row.keys));
    for (std::int64_t j = 0; j < row.keys; ++j) {
        row.read_key(j, key);
        result.scores.push_back(score(row.query, key, row.scale));
        result.max_logit = std::max(result.max_logit, result.scores.back().logit);
    }
    double sum = 0;
    for (const Score& s : result.scores) sum += std::exp(s.logit - result.max_logit);
    result.lse = result.max_logit + std::log(sum);

    std::vector<double> value;
    for (std::int64_t j = 0; j < row.keys; ++j) {
        const double weight = std::exp(result.scores[static_cast<std::size_t>(j)].logit - result.max_logit) / sum;
        row.read_value(j, value);
        for (std::size_t d = 0; d < result.mean.size(); ++d) result.mean[d] += weight * value[d];
    }
    result.sink_factor = sink_factor(row, result.lse);
    for (std::size_t d = 0; d < result.out.size(); ++d) result.out[d] = result.mean[d] * result.sink_factor;
    return result;
}

}  // namespace flashmla::reference
