// Rows of a large batch held against the double-precision oracle.
#pragma once

#include <cstdint>
#include <string>

#include "cli/decode_batch.hpp"
#include "flashmla/plan.hpp"
#include "reference/error_bound.hpp"

namespace flashmla::cli {

// Where the kernel of a plan rounds.
reference::RoundingModel rounding_model(const DecodePlan& plan);

struct RowCheck {
    bool passed = true;
    std::int64_t rows = 0;
    double worst_share = 0;     // largest error / bound over out and lse
    double relative_error = 0;  // largest of the requests looked at: norm of the error over norm of the exact outputs
    std::string message;        // what is wrong, where
};

// The given rows of a finished call in host memory, on `threads` threads.
RowCheck compare_on_threads(const DecodeArgs& args, const std::vector<reference::Row>& rows,
                            const reference::RoundingModel& model, int threads);

// About `rows` rows of up to 8 requests, the shortest and the longest among them, computed on `threads` threads.
RowCheck check_sample(const DecodeBatch& batch, std::int64_t rows, std::uint64_t seed, int threads);

}  // namespace flashmla::cli
