// `flashmla bench`: times of an operation over the shapes that others publish, as text and as a receipt in JSON.
#include <fmt/core.h>

#include <chrono>
#include <fstream>
#include <iomanip>
#include <memory>
#include <sstream>
#include <vector>

#include "bench/sampling.hpp"
#include "bench/suites.hpp"
#include "cli/batch_options.hpp"
#include "cli/command.hpp"
#include "cli/decode_batch.hpp"
#include "cli/progress.hpp"
#include "cli/row_check.hpp"
#include "cli/text.hpp"
#include "flashmla/explain.hpp"

namespace flashmla::cli {
namespace {

constexpr int kWarmUps = 3;

struct BenchOptions {
    BatchOptions batch;
    std::string operation = "decode";
    std::vector<std::string> suites;
    std::int64_t b = 0;  // > 0: one case of this batch size and --len instead of suites
    std::int64_t len = 8192;
    bool ragged = false;
    double data_std = 0.1;
    bool hot = false;
    int samples = 15;
    std::int64_t check_rows = 8;
    std::string output;
};

struct Case {
    std::string suite;
    BatchSpec spec;
    std::int64_t len = 0;  // the mean asked for; that of the lengths when they come from a file or a trace
    bool ragged = false;
};

Case suite_case(const BenchOptions& options, const std::string& suite, const bench::DecodeBenchCase& shape) {
    Case made{.suite = suite, .spec = {}, .len = shape.mean_len, .ragged = shape.ragged};
    BatchOptions batch = options.batch;
    batch.heads = shape.h_q;
    batch.s_q = shape.s_q;
    batch.causal = shape.causal;
    made.spec = batch_spec(batch, shape.ragged ? bench::ragged_lengths(shape.b, shape.mean_len, shape.s_q, batch.seed)
                                               : bench::Lengths(shape.b, static_cast<std::int32_t>(shape.mean_len)));
    return made;
}

std::vector<Case> chosen_cases(const BenchOptions& options, const DeviceInfo& device) {
    const BatchOptions& batch = options.batch;
    std::vector<Case> cases;
    if (!batch.lengths.empty() || !batch.lengths_file.empty() || !batch.trace.empty()) {
        Case made{.suite = batch.trace.empty() ? "lengths" : "trace", .spec = {}, .len = 0, .ragged = true};
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
    for (Case& made : cases) {
        made.spec.q_std = options.data_std;
        made.spec.k_std = options.data_std;
        if (device.device.type == DeviceType::kCpu) made.spec.num_workers = host_threads(batch);
    }
    return cases;
}

Json measure(const BenchOptions& options, const Case& asked, const DeviceInfo& device) {
    const int threads = host_threads(options.batch);
    const std::unique_ptr<DeviceBuffers> buffers = open_device(device, threads);
    const DecodeBatch batch(asked.spec, device, *buffers, threads);
    for (int i = 0; i < kWarmUps; ++i) require(batch.run());
    buffers->finish();
    const RowCheck check = check_sample(batch, options.check_rows, asked.spec.seed, threads);
    std::vector<double> times;
    for (int i = 0; i < options.samples; ++i) {
        if (!options.hot) buffers->empty_cache();
        times.push_back(buffers->time_ms([&] { return batch.run(); }));
    }
    const double ms = bench::median(times);
    const Prediction cost = require(predict_decode(batch.plan(), asked.spec.lengths));
    return {{"operation", "decode"},
            {"suite", asked.suite},
            {"kernel", batch.plan().kernel},
            {"dtype", name(asked.spec.dtype)},
            {"b", asked.spec.lengths.size()},
            {"h_q", asked.spec.h_q},
            {"s_q", asked.spec.s_q},
            {"len", asked.len},
            {"varlen", asked.ragged},
            {"total_tokens", asked.spec.total_keys()},
            {"causal", asked.spec.causal},
            {"page", asked.spec.page_size},
            {"data_std", options.data_std},
            {"cache", options.hot ? "hot" : "cold"},
            {"ms", ms},
            {"ms_min", bench::smallest(times)},
            {"ms_max", bench::largest(times)},
            {"tflops", cost.flops / (ms * 1e9)},
            {"gbps", (cost.kv_bytes + cost.q_bytes + cost.out_bytes) / (ms * 1e6)},
            {"roofline_ms", cost.roofline_seconds * 1e3},
            {"rel_error", check.relative_error},
            {"worst_share_of_bound", check.worst_share},
            {"passed", check.passed},
            {"message", check.message}};
}

std::string utc_now() {
    const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::ostringstream text;
    text << std::put_time(std::gmtime(&now), "%Y-%m-%dT%H:%M:%SZ");
    return text.str();
}

Json header(const BenchOptions& options, const DeviceInfo& device, const std::string& clocks_before,
            const std::string& clocks_after) {
    const BuildInfo build = build_info();
    Json document = json_header("bench");
    document["source_hash"] = build.source_hash;
    document["date"] = utc_now();
    document["compiler"] = build.compiler;
    document["cuda_toolkit"] = build.cuda_toolkit;
    document["machine"] = device_json(device);
    document["clocks_before"] = clocks_before;
    document["clocks_after"] = clocks_after;
    document["method"] = {{"warm_ups", kWarmUps},
                          {"samples", options.samples},
                          {"statistic", "median"},
                          {"cache", options.hot ? "hot" : "cold: a large buffer is written before each call"},
                          {"clock", device.device.type == DeviceType::kCpu ? "steady clock around the call"
                                                                           : "CUDA events around the call"},
                          {"lengths", "normal, deviation mean / 2, held to [s_q, 2 * mean], where varlen"},
                          {"seed", options.batch.seed},
                          {"softmax_scale", options.batch.softmax_scale()}};
    return document;
}

void print_record_header() {
    fmt::print("{:<8} {:>5} {:>4} {:>4} {:>7} {:>7} {:>7} {:>11} {:>9} {:>9} {:>9}\n", "suite", "b", "h_q", "s_q",
               "len", "varlen", "causal", "ms", "TFLOPS", "GB/s", "rel err");
}

void print_record(const Json& record) {
    fmt::print("{:<8} {:>5} {:>4} {:>4} {:>7} {:>7} {:>7} {:>11.4f} {:>9.4g} {:>9.4g} {:>9.2e}{}\n",
               record["suite"].get<std::string>(), record["b"].get<std::int64_t>(), record["h_q"].get<std::int64_t>(),
               record["s_q"].get<std::int64_t>(), record["len"].get<std::int64_t>(),
               record["varlen"].get<bool>() ? "yes" : "no", record["causal"].get<bool>() ? "yes" : "no",
               record["ms"].get<double>(), record["tflops"].get<double>(), record["gbps"].get<double>(),
               record["rel_error"].get<double>(), record["passed"].get<bool>() ? "" : "  WRONG");
    std::fflush(stdout);
}

ExitCode bench(const BenchOptions& options, bool json) {
    const DeviceInfo device = choose_device(options.batch.device);
    const std::vector<Case> cases = chosen_cases(options, device);
    std::ofstream file;
    if (!options.output.empty()) {
        file.open(options.output);
        if (!file) throw Failure{kExitRuntimeError, options.output + ": cannot be written"};
    }
    const auto clocks = [&] { return open_device(device, host_threads(options.batch))->clocks(); };
    const std::string clocks_before = clocks();
    if (!json) {
        fmt::print("decode on {}, {} cache, median of {}\n", device_text(device), options.hot ? "hot" : "cold",
                   options.samples);
        print_record_header();
    }
    Json records = Json::array();
    bool passed = true;
    ProgressBar bar("bench", !json && cases.size() > 1);
    for (std::size_t i = 0; i < cases.size(); ++i) {
        Json record = measure(options, cases[i], device);
        passed = passed && record["passed"].get<bool>();
        if (!record["passed"].get<bool>()) {
            fmt::print(stderr, "flashmla: THE RESULT IS WRONG. {}\n", record["message"].get<std::string>());
        }
        bar.clear();
        if (!json) print_record(record);
        bar.update(static_cast<double>(i + 1) / static_cast<double>(cases.size()));
        records.push_back(std::move(record));
    }
    bar.finish();
    Json document = header(options, device, clocks_before, clocks());
    document["records"] = std::move(records);
    if (json) print_json(document);
    if (file.is_open() && !(file << document.dump(1) << '\n')) {
        throw Failure{kExitRuntimeError, options.output + ": cannot be written"};
    }
    return passed ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_bench(CLI::App& app, Selected& selected) {
    CLI::App* command = add_command(
        app, selected, "bench", "Time an operation over standard shapes; each case is checked before it is timed",
        {"flashmla bench", "flashmla bench decode --suite latency --output latency.json",
         "flashmla bench --b 128 --len 8192 --heads 64 --ragged", "flashmla bench --trace requests.csv --requests 256",
         "flashmla bench --lengths-file lengths.json --hot --json"});
    auto options = std::make_shared<BenchOptions>();
    command->add_option("operation", options->operation, "What to time")
        ->check(CLI::IsMember({"decode"}))
        ->capture_default_str();
    command
        ->add_option("--suite", options->suites,
                     "dense, heads, latency (GPU sizes) or quick; several are separated by commas [quick on a CPU, "
                     "dense on a GPU]")
        ->delimiter(',')
        ->check(CLI::IsMember({"dense", "heads", "latency", "quick"}));
    command->add_option("--b", options->b, "One case instead of suites: this many requests of --len")
        ->check(CLI::Range(1, 2147483647));
    command->add_option("--len", options->len, "Cached tokens a request, with --b")
        ->check(CLI::Range(1, 1 << 30))
        ->capture_default_str();
    command->add_flag("--ragged", options->ragged, "With --b: lengths normal around --len, deviation half of it");
    add_length_options(*command, options->batch);
    add_shape_options(*command, options->batch);
    command->add_option("--scale", options->batch.scale, "Softmax scale; 0 = 192^-0.5")->capture_default_str();
    add_device_options(*command, options->batch);
    command->add_option("--data-std", options->data_std, "Standard deviation of the random data")
        ->capture_default_str();
    command->add_flag("--hot", options->hot, "Leave the caches as the call before left them");
    command->add_option("--samples", options->samples, "Timed calls a case")
        ->check(CLI::Range(1, 10000))
        ->capture_default_str();
    command->add_option("--check-rows", options->check_rows, "Rows of each case held against the oracle")
        ->check(CLI::Range(1, 2147483647))
        ->capture_default_str();
    command->add_option("--output", options->output, "Write the JSON document to this file too");
    command->callback(
        [options, &selected] { selected.action = [options, &selected] { return bench(*options, selected.json); }; });
}

}  // namespace flashmla::cli
