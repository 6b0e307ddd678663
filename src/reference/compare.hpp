// Holding results against the oracle with the derived bound.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "flashmla/decode.hpp"
#include "reference/decode_case.hpp"
#include "reference/error_bound.hpp"

namespace flashmla::reference {

struct Comparison {
    bool passed = true;
    std::string message;         // what is wrong, where, by how much; empty when passed
    std::int64_t rows = 0;       // rows compared
    double worst_out_share = 0;  // largest |error| / bound of out; more than 1 fails
    double worst_lse_share = 0;
    double max_out_error = 0;  // largest |error| of out
    double relative_error =
        0;  // Frobenius norm of the error over that of the exact out; a figure for reports, decides nothing
};

// All rows of a call, or about max_rows of them when it has more (0 = no limit): the corners first, then a seeded
// choice.
std::vector<Row> sample_rows(const DecodeArgs& args, std::int64_t max_rows, std::uint64_t seed);

// Compares out and lse of a finished call, in CPU memory, on the given rows.
Comparison compare_rows(const DecodeArgs& args, std::span<const Row> rows, const RoundingModel& model);

// The same for a case, on at most max_rows rows (0 = all), after its structural check of every element.
Comparison compare_case(const DecodeCase& done, const RoundingModel& model, std::int64_t max_rows = 0);

}  // namespace flashmla::reference
