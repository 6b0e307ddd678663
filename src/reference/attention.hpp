// Attention of one query row over its visible keys, in double precision, whatever the keys are stored as.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace flashmla::reference {

// What q.k sums up for one key: the scaled logit and the same sum with absolute values, for error bounds.
struct Score {
    double logit = 0;
    double magnitude = 0;  // |softmax_scale| * sum_i |q_i k_i|
};

struct RowResult {
    std::vector<Score> scores;  // one a visible key
    double max_logit = 0;       // -inf without a visible key
    double lse = 0;             // natural log, without the sink; +inf without a visible key
    double sink_factor = 1;     // exp(lse) / (exp(lse) + exp(sink))
    std::vector<double> mean;   // d_v, before the sink
    std::vector<double> out;    // mean * sink_factor; zeros without a visible key
};

// One row to attend: its query and how to read key and value number j < keys. Nothing else is read.
struct AttentionRow {
    // Sets `values` to the key's d_qk values, or to d_v or more, of which the first d_v are the value's.
    using Read = std::function<void(std::int64_t j, std::vector<double>& values)>;

    std::vector<double> query;
    double scale = 1;
    std::int64_t keys = 0;
    std::size_t d_v = 0;
    std::optional<double> sink;
    Read read_key;
    Read read_value;
};

RowResult attend_row(const AttentionRow& row);

}  // namespace flashmla::reference
