// The executable specification of sparse prefill: decode of one request whose cache is the rows as one page, where
// every query token has its own list.
#pragma once

#include <string>

#include "flashmla/prefill.hpp"
#include "reference/error_bound.hpp"

namespace flashmla::reference {

// The same call as decode: query token t and head h are Row{0, t, h}; lse has the strides of the prefill's.
DecodeArgs as_decode(const SparsePrefillArgs& args);

// Every row of a finished call against the oracle; empty when all hold, otherwise what is wrong.
std::string compare_sparse_prefill(const SparsePrefillArgs& args, const RoundingModel& model);

}  // namespace flashmla::reference
