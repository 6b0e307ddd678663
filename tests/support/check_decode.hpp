// GoogleTest glue: one case through one way of running it, held against the oracle.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "flashmla/decode.hpp"
#include "reference/compare.hpp"
#include "reference/decode_case.hpp"
#include "reference/decode_spec.hpp"

namespace flashmla::reference {

// How GoogleTest shows a parameter.
inline void PrintTo(const DecodeSpec& spec, std::ostream* stream) { *stream << describe(spec); }

}  // namespace flashmla::reference

namespace flashmla::testing_support {

using DecodeRunner = std::function<Status(const DecodeArgs&)>;

// Keys that the oracle visits for one case at most (about 1 us each); cases with more are checked on a sample of rows.
inline constexpr std::int64_t kOracleKeys = 400'000;

// Builds the case, runs it, and checks every element's rules and as many rows against the oracle as the budget allows.
testing::AssertionResult matches_oracle(const reference::DecodeSpec& spec, const DecodeRunner& run,
                                        const reference::RoundingModel& model, std::int64_t oracle_keys = kOracleKeys);

// For INSTANTIATE_TEST_SUITE_P: the spec's name with everything but letters and digits turned into '_'.
std::string test_name(const testing::TestParamInfo<reference::DecodeSpec>& info);

}  // namespace flashmla::testing_support
