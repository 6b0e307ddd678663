#include "reference/error_bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/row_keys.hpp"

namespace flashmla::reference {
namespace {

constexpr double kUnit = 0x1p-24;       // fp32
constexpr double kExp2Error = 0x1p-22;  // relative, of one 2^x; what backends must keep to
constexpr double kLog2Error = 0x1p-21;  // absolute, in the natural LSE
constexpr int kKeysPerRescale = 16;     // a backend rescales at most once in so many keys

// Relative error of `count` roundings of size `unit` in a row.
double rounded(double count, double unit) { return std::expm1(count * unit / (1 - unit)); }

// Two relative errors on top of each other.
double both(double a, double b) { return a + b + a * b; }

// What all terms of one row have in common.
struct RowFacts {
    double sums;      // fp32 additions that a key's contribution passes through
    double rescales;  // multiplications by a power of two computed from maxima
    double largest;   // max |logit| + log(keys): no reference maximum and no LSE of a part is larger
    double sum;       // sum of exp(logit - max)
};

RowFacts facts_of(const RowResult& exact, const RoundingModel& model) {
    const auto keys = static_cast<std::int64_t>(exact.scores.size());
    const std::int64_t part = std::min(keys, model.longest_sum);
    const std::int64_t parts = core::ceil_div(keys, part);
    RowFacts facts{.sums = static_cast<double>(part + parts),
                   .rescales = static_cast<double>(core::ceil_div<std::int64_t>(part, kKeysPerRescale) + 1),
                   .largest = std::log(static_cast<double>(keys)),
                   .sum = std::exp(exact.lse - exact.max_logit)};
    double largest_logit = 0;
    for (const Score& score : exact.scores) largest_logit = std::max(largest_logit, std::abs(score.logit));
    facts.largest += largest_logit;
    return facts;
}

// Absolute error of q . k, times the scale.
double dot_error(const Score& score, std::size_t d_qk, const RoundingModel& model) {
    return rounded(static_cast<double>(d_qk) + 1, model.addition) * score.magnitude;
}

// Relative error of a key's weight before it is rounded. The numerator and the normalising sum share it.
double weight_error(const Score& score, std::size_t d_qk, const RowFacts& facts, const RoundingModel& model) {
    const double arguments = 10 * kUnit * (std::abs(score.logit) + facts.largest);
    return std::expm1(dot_error(score, d_qk, model) + arguments + (facts.rescales + 2) * kExp2Error + kLog2Error);
}

}  // namespace

RowBound error_bound(const DecodeArgs& args, const Row& row, const RowResult& exact, const RoundingModel& model) {
    return error_bound(attention_row(args, row), exact, args.out.dtype, model);
}

RowBound error_bound(const AttentionRow& row, const RowResult& exact, DType out_dtype, const RoundingModel& model) {
    RowBound bound{std::vector<double>(exact.out.size()), 0};
    if (exact.scores.empty()) return bound;

    std::vector<double> value;
    const RowFacts facts = facts_of(exact, model);
    const double adding = rounded(facts.sums + facts.rescales + 4, model.addition);
    const double weight_unit = core::unit_roundoff(model.weights);
    const bool shared = model.sum_of_rounded_weights;
    const double numerator = both(adding, both(shared ? 0 : weight_unit, core::unit_roundoff(model.partials)));

    double sum_error = 0;  // relative, of the normalising sum
    for (std::size_t j = 0; j < exact.scores.size(); ++j) {
        const double scaled = std::exp(exact.scores[j].logit - exact.max_logit);
        const double weight = scaled / facts.sum;
        const double underflow = std::min(core::underflow_error(model.weights), scaled) / facts.sum;
        const double before = weight_error(exact.scores[j], row.query.size(), facts, model);
        const double in_both = weight * (shared ? both(before, weight_unit) : before) + (shared ? underflow : 0);
        const double in_values = (weight + in_both) * numerator + (shared ? 0 : underflow);
        const double in_sum = (weight + in_both) * adding;
        sum_error += in_both + in_sum;
        const Score& score = exact.scores[j];
        bound.max_logit =
            std::max(bound.max_logit, dot_error(score, row.query.size(), model) + 10 * kUnit * std::abs(score.logit));
        row.read_value(static_cast<std::int64_t>(j), value);
        for (std::size_t d = 0; d < bound.out.size(); ++d) {
            bound.out[d] += in_both * std::abs(value[d] - exact.mean[d]) + in_values * std::abs(value[d]) +
                            in_sum * std::abs(exact.mean[d]);
        }
    }
    if (sum_error >= 0.5) {
        std::fill(bound.out.begin(), bound.out.end(), std::numeric_limits<double>::infinity());
        bound.lse = bound.max_logit = std::numeric_limits<double>::infinity();
        return bound;
    }
    bound.lse = -std::log1p(-sum_error) + 10 * kUnit * facts.largest + kLog2Error;
    // The sink's factor f = 1 / (1 + exp(sink - lse)) has the derivative f (1 - f) after lse.
    const double factor = exact.sink_factor;
    const double factor_error = std::expm1((1 - factor) * std::expm1(bound.lse));
    const double stored = both(rounded(6, kUnit), core::unit_roundoff(out_dtype));
    const double stored_underflow = core::underflow_error(out_dtype) + core::underflow_error(model.partials);
    for (std::size_t d = 0; d < bound.out.size(); ++d) {
        const double magnitude = std::abs(exact.out[d]);
        const double computed = factor * (1 + factor_error) * bound.out[d] / (1 - sum_error) + factor_error * magnitude;
        bound.out[d] = computed + stored * (magnitude + computed) + stored_underflow;
    }
    return bound;
}

}  // namespace flashmla::reference
