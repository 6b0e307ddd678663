// `flashmla bench`: times of an operation over the shapes that others publish, as text and as a receipt in JSON.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iomanip>
#include <memory>
#include <sstream>

#include "bench/sampling.hpp"
#include "cli/bench_table.hpp"
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
    const BenchTable table(options, cases);
    if (!json) table.print_heading(options, device, ceilings);
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
        if (!json) table.print_record(i, record);
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

constexpr const char* kSizes =
    "Sizes (in place of those of the standard cases; in brackets what decode takes beside --b)";
constexpr const char* kMeasurement = "Measurement";
constexpr const char* kDecode = "Of decode alone";

void group(CLI::App& command, const char* name, std::initializer_list<const char*> options) {
    for (const char* option : options) command.get_option(option)->group(name);
}

// Options of the operations other than dense decode.
void add_operation_options(CLI::App& command, BenchOptions& options) {
    const auto size = [&](const char* name, std::int64_t& value, const char* text) {
        command.add_option(name, value, text)->check(CLI::Range(1, 2147483647))->option_text("N");
    };
    size("--kv-heads", options.kv_heads, "KV heads (dense prefill)");
    size("--topk", options.topk, "Tokens that a query attends to (sparse)");
    size("--parts", options.parts, "Partial results (merge)");
    size("--head-dim", options.head_dim, "Dims of an unabsorbed head (absorb_query, project_output)");
    size("--kv-lora-rank", options.kv_lora_rank, "Dims of the latent (absorb_query, project_output)");
    command.add_option("--format", options.format, "Cache format")->check(is_format());
    command.add_option("--to", options.to, "Format to convert to")->check(is_format());
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
         "flashmla bench convert --len 4096 --format fp8_656 --to bf16",
         "flashmla bench dense_prefill --s-q 512 --len 4096 --heads 8 --kv-heads 8"});
    auto options = std::make_shared<BenchOptions>();
    add_operation(*command, options->operation, "What to time; listed below");
    command->add_option("--b", options->b, "Requests; of decode, one case of that many of --len, instead of suites")
        ->check(CLI::Range(1, 2147483647));
    add_device_options(*command, options->batch);
    command->add_option("--len", options->len, "Tokens of a request: cached ones, or keys [decode: 8192]")
        ->check(CLI::Range(1, 1 << 30));
    command->add_flag("--ragged", options->ragged,
                      "Lengths differ. decode, with --b: normal around --len, deviation half of it; prefill: up to "
                      "--s-q and --len, lists up to --topk");
    command
        ->add_option("--suite", options->suites,
                     "dense, heads, latency (GPU sizes) or quick; several are separated by commas [quick on a CPU, "
                     "dense on a GPU]")
        ->delimiter(',')
        ->check(CLI::IsMember({"dense", "heads", "latency", "quick"}));
    add_length_options(*command, options->batch);
    add_shape_options(*command, options->batch);
    add_operation_options(*command, *options);
    command->add_option("--scale", options->batch.scale, "Softmax scale; 0 = 192^-0.5")->capture_default_str();
    command->add_option("--data-std", options->data_std,
                        "Standard deviation of the random data [0.1; other operations than decode: 0.5 or 1]");
    command->add_flag("--hot", options->hot, "Leave the caches as the call before left them");
    command->add_option("--samples", options->samples, "Timed calls a case")
        ->check(CLI::Range(1, 10000))
        ->capture_default_str();
    command->add_option("--check-rows", options->check_rows, "Rows of each case held against the oracle")
        ->check(CLI::Range(1, 2147483647))
        ->capture_default_str();
    command->add_option("--output", options->output, "Write the JSON document to this file too");
    group(*command, kSizes,
          {"--b", "--len", "--ragged", "--s-q", "--heads", "--kv-heads", "--topk", "--parts", "--d-qk", "--d-v",
           "--head-dim", "--kv-lora-rank", "--page", "--dtype", "--format", "--to", "--causal"});
    group(*command, kMeasurement,
          {"--device", "--threads", "--seed", "--data-std", "--hot", "--samples", "--check-rows", "--output"});
    group(*command, kDecode,
          {"--suite", "--lengths", "--lengths-file", "--trace", "--requests", "--batch-invariant", "--kernel",
           "--scale"});
    command->footer("Operations, and the sizes that each has:\n" + operation_summaries() + "\n" +
                    command->get_footer());
    options->given = [command](const std::string& name) { return command->count(name) > 0; };
    command->callback(
        [options, &selected] { selected.action = [options, &selected] { return bench(*options, selected.json); }; });
}

}  // namespace flashmla::cli
