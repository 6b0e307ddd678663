// Where the KV lengths of a batch come from: a list, a generator, a file, a trace of real requests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flashmla/status.hpp"

namespace flashmla::bench {

using Lengths = std::vector<std::int32_t>;

// "450,18200,3100"
Result<Lengths> parse_lengths(const std::string& text);

// Normal around `mean` with deviation mean / 2, cut off (toward 0), held to [s_q, 2 * mean]. Depends on seed and
// position alone.
Lengths ragged_lengths(std::int64_t b, std::int64_t mean, std::int64_t s_q, std::uint64_t seed);

// Numbers of a file, separated by anything: a JSON array, one a line, CSV. Comments and headers are not numbers, so not
// allowed.
Result<Lengths> read_lengths_file(const std::string& path);

struct TraceRequest {
    std::int64_t arrival_ms = 0;
    std::int64_t input_tokens = 0;
    std::int64_t output_tokens = 0;
};

// A CSV file with the columns arrival_ms, input_tokens and output_tokens, in any order, named in its first line.
Result<std::vector<TraceRequest>> read_trace(const std::string& path);

// A decode batch met at a random moment: `requests` different requests of the trace (all, when it has fewer), each with
// its input tokens plus a random number, 1 to output_tokens, of tokens generated so far.
Lengths pick_from_trace(const std::vector<TraceRequest>& trace, std::int64_t requests, std::uint64_t seed);

}  // namespace flashmla::bench
