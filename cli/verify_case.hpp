// One random case of `verify`: run on a device, held against the oracle; and the search for a smaller one that fails
// too.
#pragma once

#include <functional>
#include <string>

#include "cli/command.hpp"
#include "cli/device_buffers.hpp"
#include "reference/decode_spec.hpp"

namespace flashmla::cli {

struct CaseOutcome {
    bool passed = true;
    std::string message;     // what was wrong
    double worst_share = 0;  // largest error / bound
    std::int64_t rows = 0;   // held against the oracle
    bool skipped = false;    // no kernel of this device takes the shape; message says why
};

// `batch_invariant` asks the planner for the mode; `threads` is the number of workers on a CPU.
CaseOutcome run_case(const reference::DecodeSpec& spec, bool batch_invariant, const DeviceInfo& device, int threads);

// Makes the spec simpler as long as `fails` says that it still fails: fewer and shorter requests, fewer heads and query
// tokens, tame data, plain layouts. Calls `fails` at most `most_tries` times.
reference::DecodeSpec shrink(reference::DecodeSpec spec, const std::function<bool(const reference::DecodeSpec&)>& fails,
                             int most_tries);

// Every field of a spec, and back; throws kExitBadInput.
Json spec_json(const reference::DecodeSpec& spec);
reference::DecodeSpec spec_from_json(const std::string& text);

}  // namespace flashmla::cli
