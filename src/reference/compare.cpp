#include "reference/compare.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/float_formats.hpp"
#include "reference/random.hpp"

namespace flashmla::reference {
namespace {

constexpr int kReportedRows = 3;

// Error over bound. NaN anywhere, and an infinity where the other side has none, is infinitely wrong.
double share(double got, double expected, double bound) {
    if (got == expected) return 0;
    const double error = std::abs(got - expected);
    return std::isfinite(error) && std::isfinite(bound) ? error / std::max(bound, 1e-300) : INFINITY;
}

class Comparer {
public:
    Comparer(const DecodeArgs& args, const RoundingModel& model) : args_(args), model_(model) {}

    void compare(const Row& row) {
        const RowResult exact = decode_row(args_, row);
        const RowBound bound = error_bound(args_, row, exact, model_);
        const std::uint16_t* out = stored_out(args_, row);
        double worst = 0;
        std::size_t worst_column = 0;
        for (std::size_t d = 0; d < exact.out.size(); ++d) {
            const double got = core::decode_16bit(args_.out.dtype, out[d]);
            const double error = std::abs(got - exact.out[d]);
            squared_error_ += error * error;
            squared_exact_ += exact.out[d] * exact.out[d];
            result_.max_out_error = std::fmax(result_.max_out_error, error);
            if (const double s = share(got, exact.out[d], bound.out[d]); s > worst) {
                worst = s;
                worst_column = d;
            }
        }
        const double lse = stored_lse(args_, row);
        const double lse_share = share(lse, exact.lse, bound.lse);
        result_.worst_out_share = std::max(result_.worst_out_share, worst);
        result_.worst_lse_share = std::max(result_.worst_lse_share, lse_share);
        ++result_.rows;
        if (worst <= 1 && lse_share <= 1) return;
        if (++failed_ > kReportedRows) return;
        text_ << "\n  " << describe(row) << " (" << exact.scores.size() << " keys): out[" << worst_column
              << "] expected " << exact.out[worst_column] << " got "
              << core::decode_16bit(args_.out.dtype, out[worst_column]) << " bound " << bound.out[worst_column]
              << "; lse expected " << exact.lse << " got " << lse << " bound " << bound.lse;
    }

    Comparison result() {
        result_.relative_error =
            squared_exact_ > 0 ? std::sqrt(squared_error_ / squared_exact_) : std::sqrt(squared_error_);
        if (failed_ > 0) {
            std::ostringstream message;
            message << failed_ << " of " << result_.rows
                    << " compared rows are outside the error bound; worst error over bound: out "
                    << result_.worst_out_share << ", lse " << result_.worst_lse_share << text_.str();
            result_.passed = false;
            result_.message = message.str();
        }
        return result_;
    }

private:
    const DecodeArgs& args_;
    const RoundingModel& model_;
    Comparison result_;
    double squared_error_ = 0;
    double squared_exact_ = 0;
    int failed_ = 0;
    std::ostringstream text_;
};

}  // namespace

std::vector<Row> sample_rows(const DecodeArgs& args, std::int64_t max_rows, std::uint64_t seed) {
    const auto& [b, s_q, h_q, d_v] = args.out.shape;
    std::vector<Row> rows;
    const std::int64_t all = b * s_q * h_q;
    if (max_rows == 0 || all <= max_rows) {
        for (std::int64_t i = 0; i < all; ++i) rows.push_back({i / (s_q * h_q), i / h_q % s_q, i % h_q});
        return rows;
    }
    for (const std::int64_t i : {std::int64_t{0}, b - 1}) {
        rows.push_back({i, 0, 0});
        rows.push_back({i, s_q - 1, h_q - 1});
    }
    Random random(seed);
    while (static_cast<std::int64_t>(rows.size()) < max_rows) {
        const std::int64_t i = random.between(0, all - 1);
        rows.push_back({i / (s_q * h_q), i / h_q % s_q, i % h_q});
    }
    return rows;
}

Comparison compare_rows(const DecodeArgs& args, std::span<const Row> rows, const RoundingModel& model) {
    Comparer comparer(args, model);
    for (const Row& row : rows) comparer.compare(row);
    return comparer.result();
}

Comparison compare_case(const DecodeCase& done, const RoundingModel& model, std::int64_t max_rows) {
    Comparison result;
    if (const std::string fault = done.structural_fault(); !fault.empty()) {
        result.passed = false;
        result.message = fault;
    } else {
        const DecodeArgs args = done.args();
        std::vector<Row> rows = sample_rows(args, max_rows, done.spec().seed);
        std::erase_if(rows, [&](const Row& row) { return !done.is_live(row); });
        result = compare_rows(args, rows, model);
    }
    if (!result.passed) result.message = describe(done.spec()) + "\n  " + result.message;
    return result;
}

}  // namespace flashmla::reference
