// Limits that hold for every kernel, so that everything behind them may count in int without overflow.
#pragma once

#include "flashmla/plan.hpp"
#include "flashmla/prefill.hpp"
#include "flashmla/status.hpp"

namespace flashmla::plan {

// One request's rows, all KV heads together: bounds row tiles and units a request (int).
inline constexpr std::int64_t kMaxRowsPerRequest = std::int64_t{1} << 30;
// All rows: with at most 2^25 key tiles a row the schedule's line stays below 2^62. Its output alone would be 2^46
// bytes.
inline constexpr std::int64_t kMaxRows = std::int64_t{1} << 36;

Status check_shape(const DecodeShape& shape);
Status check_shape(const PrefillShape& shape);

}  // namespace flashmla::plan
