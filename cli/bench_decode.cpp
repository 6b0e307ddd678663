// The cases of `flashmla bench decode`: suites of shapes, or one.
#include <memory>

#include "bench/suites.hpp"
#include "cli/bench_options.hpp"
#include "cli/decode_batch.hpp"
#include "cli/exit_codes.hpp"
#include "flashmla/explain.hpp"

namespace flashmla::cli {
namespace {

struct DecodeBench {
    std::string suite;
    BatchSpec spec;
    std::int64_t len = 0;  // the mean asked for; that of the lengths when they come from a file or a trace
    bool ragged = false;
};

DecodeBench suite_case(const BenchOptions& options, const std::string& suite, const bench::DecodeBenchCase& shape) {
    DecodeBench made{.suite = suite, .spec = {}, .len = shape.mean_len, .ragged = shape.ragged};
    BatchOptions batch = options.batch;
    batch.heads = shape.h_q;
    batch.s_q = shape.s_q;
    batch.causal = shape.causal;
    made.spec = batch_spec(batch, shape.ragged ? bench::ragged_lengths(shape.b, shape.mean_len, shape.s_q, batch.seed)
                                               : bench::Lengths(shape.b, static_cast<std::int32_t>(shape.mean_len)));
    return made;
}

std::vector<DecodeBench> chosen_cases(const BenchOptions& options, const DeviceInfo& device) {
    const BatchOptions& batch = options.batch;
    std::vector<DecodeBench> cases;
    if (!batch.lengths.empty() || !batch.lengths_file.empty() || !batch.trace.empty()) {
        DecodeBench made{.suite = batch.trace.empty() ? "lengths" : "trace", .spec = {}, .len = 0, .ragged = true};
        made.spec = batch_spec(batch, chosen_lengths(batch, ""));
        if (!made.spec.lengths.empty())
            made.len = made.spec.total_keys() / static_cast<std::int64_t>(made.spec.lengths.size());
        cases.push_back(made);
    } else if (options.b > 0) {
        cases.push_back(suite_case(options, "single",
                                   {.b = options.b,
                                    .h_q = batch.heads,
                                    .s_q = batch.s_q,
                                    .mean_len = options.len,
                                    .ragged = options.ragged,
                                    .causal = batch.causal}));
    } else {
        std::vector<std::string> suites = options.suites;
        if (suites.empty()) suites = {device.device.type == DeviceType::kCpu ? "quick" : "dense"};
        for (const std::string& suite : suites) {
            for (const bench::DecodeBenchCase& shape : require(bench::decode_suite(suite))) {
                cases.push_back(suite_case(options, suite, shape));
            }
        }
    }
    for (DecodeBench& made : cases) {
        made.spec.q_std = options.data_std;
        made.spec.k_std = options.data_std;
        if (device.device.type == DeviceType::kCpu) made.spec.num_workers = host_threads(batch);
    }
    return cases;
}

Json measure(const BenchOptions& options, const DecodeBench& asked, const DeviceInfo& device,
             const Ceilings& ceilings) {
    const int threads = host_threads(options.batch);
    const std::unique_ptr<DeviceBuffers> buffers = open_device(device, threads);
    const DecodeBatch batch(asked.spec, device, *buffers, threads);
    const Measurement measured = measure_calls(
        options, *buffers, [&] { return batch.run(); },
        [&] { return check_sample(batch, options.check_rows, asked.spec.seed, threads); });
    const Prediction cost = require(predict_decode(batch.plan(), asked.spec.lengths));
    Json record = {{"operation", "decode"},          {"suite", asked.suite},
                   {"kernel", batch.plan().kernel},  {"dtype", name(asked.spec.dtype)},
                   {"b", asked.spec.lengths.size()}, {"h_q", asked.spec.h_q},
                   {"s_q", asked.spec.s_q},          {"len", asked.len},
                   {"varlen", asked.ragged},         {"total_tokens", asked.spec.total_keys()},
                   {"causal", asked.spec.causal},    {"page", asked.spec.page_size},
                   {"data_std", options.data_std},   {"cache", options.hot ? "hot" : "cold"}};
    add_results(record, measured, {.flops = cost.flops, .bytes = cost.kv_bytes + cost.q_bytes + cost.out_bytes},
                ceilings);
    record["roofline_ms"] = cost.roofline_seconds * 1e3;
    return record;
}

}  // namespace

std::vector<BenchCase> decode_bench_cases(const BenchOptions& options, const DeviceInfo& device) {
    std::vector<BenchCase> cases;
    for (const DecodeBench& asked : chosen_cases(options, device)) {
        cases.push_back({.measure = [=](const Ceilings& ceilings) { return measure(options, asked, device, ceilings); },
                         .facts = {}});
    }
    return cases;
}

}  // namespace flashmla::cli
