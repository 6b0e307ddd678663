// What the files of `flashmla bench` share: options, timing, the part of a record that every operation has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/batch_options.hpp"
#include "cli/ceilings.hpp"
#include "cli/command.hpp"
#include "cli/row_check.hpp"

namespace flashmla::cli {

struct BenchOptions {
    BatchOptions batch;
    std::string operation = "decode";
    std::vector<std::string> suites;
    std::int64_t b = 0;  // decode: > 0 means one case of this batch size and --len instead of suites
    std::int64_t len = 8192;
    bool ragged = false;
    double data_std = 0.1;
    bool hot = false;
    int samples = 15;
    std::int64_t check_rows = 8;
    std::string output;

    // Of the operations other than dense decode: these replace the standard sizes' own values where they are given.
    std::int64_t kv_heads = 1, topk = 2048, parts = 2, head_dim = 128, kv_lora_rank = 512;
    std::string format = "bf16", to = "fp8_656";
    std::function<bool(const std::string&)> given;  // whether the option was on the command line
};

// A case to measure: makes its record.
struct BenchCase {
    std::function<Json(const Ceilings&)> measure;
    Json facts;  // of operations other than decode: what tells it from the others
};

std::vector<BenchCase> decode_bench_cases(const BenchOptions& options, const DeviceInfo& device);
std::vector<BenchCase> operation_bench_cases(const BenchOptions& options, const DeviceInfo& device);

// Three warm-ups, a check, then the timed calls; `check` is called after the warm-ups.
struct Measurement {
    std::vector<double> times_ms;
    RowCheck check;
};
Measurement measure_calls(const BenchOptions& options, DeviceBuffers& buffers, const std::function<Status()>& call,
                          const std::function<RowCheck()>& check);

// What a call does at least.
struct Work {
    double flops = 0, bytes = 0;
};

// Times, rates and shares of the ceilings, and what the check said. The share of the roofline is the time that the
// larger of both needs at the ceilings over the time taken.
void add_results(Json& record, const Measurement& measured, const Work& work, const Ceilings& ceilings);

}  // namespace flashmla::cli
