// `flashmla verify OPERATION` for every operation but decode.
#pragma once

#include "cli/batch_options.hpp"
#include "cli/command.hpp"
#include "cli/operations/operation_case.hpp"

namespace flashmla::cli {

struct OperationVerifyOptions {
    std::int64_t cases = 0;
    std::uint64_t seed = 0;
    std::int64_t max_length = 0, max_rows = 0;
    BatchOptions batch;  // device and threads
};

// Random cases of an operation, every row of each held against the oracle; stops at the first that fails.
ExitCode verify_operation(const OperationInfo& operation, const OperationVerifyOptions& options, bool json);

}  // namespace flashmla::cli
