// `flashmla bench`: times of an operation over the shapes that others publish, as text and as a receipt in JSON.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iomanip>
#include <memory>
#include <sstream>

#include "bench/sampling.hpp"
#include "cli/bench_options.hpp"
#include "cli/kv/cache_file.hpp"
#include "cli/operations/operation_case.hpp"
#include "cli/progress.hpp"
#include "cli/text.hpp"
#include "flashmla/build_info.hpp"

namespace flashmla::cli {
namespace {

constexpr int kWarmUps = 3;

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

std::string yes_no(const Json& record, const char* key) { return record[key].get<bool>() ? "yes" : "no"; }

// Decode in columns, the facts of other operations as words.
std::string case_text(const Json& record) {
    if (record["operation"] != "decode") return fmt::format("{:<66}", record["case"].get<std::string>());
    return fmt::format("{:<8} {:>5} {:>4} {:>4} {:>7} {:>7} {:>7}", record["suite"].get<std::string>(),
                       record["b"].get<std::int64_t>(), record["h_q"].get<std::int64_t>(),
                       record["s_q"].get<std::int64_t>(), record["len"].get<std::int64_t>(), yes_no(record, "varlen"),
                       yes_no(record, "causal"));
}

void print_heading(const BenchOptions& options, const DeviceInfo& device, const Ceilings& ceilings) {
    fmt::print("{} on {}, {} cache, median of {}; ceilings {:.4g} TFLOPS ({}), {:.4g} GB/s (copy, measured)\n",
               options.operation, device_text(device), options.hot ? "hot" : "cold", options.samples, ceilings.tflops,
               ceilings.tflops_source, ceilings.copy_gbps);
    const std::string columns = options.operation == "decode"
                                    ? fmt::format("{:<8} {:>5} {:>4} {:>4} {:>7} {:>7} {:>7}", "suite", "b", "h_q",
                                                  "s_q", "len", "varlen", "causal")
                                    : fmt::format("{:<66}", "case");
    fmt::print("{} {:>11} {:>9} {:>9} {:>6} {:>9}\n", columns, "ms", "TFLOPS", "GB/s", "roof", "rel err");
}

void print_record(const Json& record) {
    fmt::print("{} {:>11.4f} {:>9.4g} {:>9.4g} {:>5.1f}% {:>9.2e}{}\n", case_text(record), record["ms"].get<double>(),
               record["tflops"].get<double>(), record["gbps"].get<double>(),
               100 * record["share_of_roofline"].get<double>(), record["rel_error"].get<double>(),
               record["passed"].get<bool>() ? "" : "  WRONG");
    std::fflush(stdout);
}

ExitCode bench(const BenchOptions& options, bool json) {
    const DeviceInfo device = choose_device(options.batch.device);
    for (const char* option : {"--kv-heads", "--topk", "--parts", "--format", "--to"}) {
        if (options.operation == "decode" && options.given(option)) {
            throw Failure{kExitBadInput,
                          std::string(option) + ": decode has none; see decode_formats and sparse_decode"};
        }
    }
    const std::vector<BenchCase> cases =
        options.operation == "decode" ? decode_bench_cases(options, device) : operation_bench_cases(options, device);
    std::ofstream file;
    if (!options.output.empty()) {
        file.open(options.output);
        if (!file) throw Failure{kExitRuntimeError, options.output + ": cannot be written"};
    }
    const int threads = host_threads(options.batch);
    const std::string clocks_before = open_device(device, threads)->clocks();
    const Ceilings ceilings = measure_ceilings(device, *open_device(device, threads), threads);
    if (!json) print_heading(options, device, ceilings);
    Json records = Json::array();
    bool passed = true;
    ProgressBar bar("bench", !json && cases.size() > 1);
    for (std::size_t i = 0; i < cases.size(); ++i) {
        Json record = cases[i].measure(ceilings);
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
    Json document = header(options, device, clocks_before, open_device(device, threads)->clocks());
    document["ceilings"] = ceilings_json(ceilings);
    document["records"] = std::move(records);
    if (json) print_json(document);
    if (file.is_open() && !(file << document.dump(1) << '\n')) {
        throw Failure{kExitRuntimeError, options.output + ": cannot be written"};
    }
    return passed ? kExitOk : kExitCheckFailed;
}

// Options of the operations other than dense decode.
void add_operation_options(CLI::App& command, BenchOptions& options) {
    command.add_option("--kv-heads", options.kv_heads, "KV heads (dense prefill)")
        ->check(CLI::Range(1, 2147483647))
        ->capture_default_str();
    command.add_option("--topk", options.topk, "Tokens that a query attends to (sparse)")
        ->check(CLI::Range(1, 2147483647))
        ->capture_default_str();
    command.add_option("--parts", options.parts, "Partial results (merge)")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    command.add_option("--head-dim", options.head_dim, "Dims of an unabsorbed head (absorb_query, project_output)")
        ->check(CLI::Range(1, 2147483647))
        ->capture_default_str();
    command.add_option("--kv-lora-rank", options.kv_lora_rank, "Dims of the latent (absorb_query, project_output)")
        ->check(CLI::Range(1, 2147483647))
        ->capture_default_str();
    command.add_option("--format", options.format, "Cache format")->check(is_format())->capture_default_str();
    command.add_option("--to", options.to, "Format to convert to")->check(is_format())->capture_default_str();
}

}  // namespace

Measurement measure_calls(const BenchOptions& options, DeviceBuffers& buffers, const std::function<Status()>& call,
                          const std::function<RowCheck()>& check) {
    for (int i = 0; i < kWarmUps; ++i) require(call());
    buffers.finish();
    Measurement measured{.times_ms = {}, .check = check()};
    for (int i = 0; i < options.samples; ++i) {
        if (!options.hot) buffers.empty_cache();
        measured.times_ms.push_back(buffers.time_ms(call));
    }
    return measured;
}

void add_results(Json& record, const Measurement& measured, const Work& work, const Ceilings& ceilings) {
    const double ms = bench::median(measured.times_ms);
    const double arithmetic_ms = ceilings.tflops > 0 ? work.flops / (ceilings.tflops * 1e9) : 0;
    const double memory_ms = ceilings.copy_gbps > 0 ? work.bytes / (ceilings.copy_gbps * 1e6) : 0;
    record["ms"] = ms;
    record["ms_min"] = bench::smallest(measured.times_ms);
    record["ms_max"] = bench::largest(measured.times_ms);
    record["tflops"] = work.flops / (ms * 1e9);
    record["gbps"] = work.bytes / (ms * 1e6);
    record["share_of_peak_tflops"] = arithmetic_ms / ms;
    record["share_of_copy_gbps"] = memory_ms / ms;
    record["share_of_roofline"] = std::max(arithmetic_ms, memory_ms) / ms;
    record["rel_error"] = measured.check.relative_error;
    record["worst_share_of_bound"] = measured.check.worst_share;
    record["passed"] = measured.check.passed;
    record["message"] = measured.check.message;
}

void add_bench(CLI::App& app, Selected& selected) {
    CLI::App* command = add_command(
        app, selected, "bench",
        "Time an operation over standard shapes, against what the machine can do; each case is checked first",
        {"flashmla bench", "flashmla bench decode --suite latency --output latency.json",
         "flashmla bench --b 128 --len 8192 --heads 64 --ragged", "flashmla bench --trace requests.csv --requests 256",
         "flashmla bench --lengths-file lengths.json --hot --json", "flashmla bench append --output append.json",
         "flashmla bench convert --len 4096 --format fp8_656 --to bf16"});
    auto options = std::make_shared<BenchOptions>();
    command->add_option("operation", options->operation, "What to time: " + operation_names())
        ->check(CLI::IsMember(operation_list()))
        ->option_text("TEXT=decode");
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
    add_operation_options(*command, *options);
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
    options->given = [command](const std::string& name) { return command->count(name) > 0; };
    command->callback(
        [options, &selected] { selected.action = [options, &selected] { return bench(*options, selected.json); }; });
}

}  // namespace flashmla::cli
