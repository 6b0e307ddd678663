// `flashmla run`: one decode step over a ragged batch, checked and measured.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "bench/sampling.hpp"
#include "cli/batch_options.hpp"
#include "cli/ceilings.hpp"
#include "cli/command.hpp"
#include "cli/decode_batch.hpp"
#include "cli/progress.hpp"
#include "cli/row_check.hpp"
#include "cli/text.hpp"
#include "flashmla/explain.hpp"

namespace flashmla::cli {
namespace {

constexpr const char* kDefaultLengths = "450,18200,3100";
constexpr int kWarmUps = 1;
constexpr double kModelValues = 2.0 * 128;  // keys and values of one DeepSeek-V3 head, 16-bit values a token

struct RunOptions {
    BatchOptions batch;
    int repeat = 5;
    std::int64_t check_rows = 32;
};

struct Measured {
    std::vector<double> times_ms;
    Ceilings ceilings;
    Prediction prediction;
    RowCheck check;

    double ms() const { return bench::median(times_ms); }
    double gbps() const { return (prediction.kv_bytes + prediction.q_bytes + prediction.out_bytes) / (ms() * 1e6); }
    double tflops() const { return prediction.flops / (ms() * 1e9); }
};

double mha_bytes(const BatchSpec& spec) {
    return kModelValues * static_cast<double>(spec.h_q) * 2 * static_cast<double>(spec.total_keys());
}

std::string lengths_text(const bench::Lengths& lengths) {
    constexpr std::size_t kShown = 6;
    std::string text;
    for (std::size_t i = 0; i < std::min(kShown, lengths.size()); ++i) {
        text += (i > 0 ? "; " : "") + grouped(static_cast<std::int64_t>(lengths[i]));
    }
    return text + (lengths.size() > kShown ? "; ..." : "");
}

std::string share_text(double part, double whole) {
    return whole > 0 ? fmt::format("{:.1f}%", 100 * part / whole) : "?";
}

std::string cache_text(const BatchSpec& spec, double kv_bytes) {
    const std::string mha =
        fmt::format("{} read; full multi-head attention (2 x {} x 128 values a token) would read {}",
                    bytes_text(kv_bytes), spec.h_q, bytes_text(mha_bytes(spec)));
    if (kv_bytes <= 0) return mha;
    const double ratio = mha_bytes(spec) / kv_bytes;
    if (ratio >= 1) return mha + fmt::format(", {:.1f} times as much", ratio);
    return mha + fmt::format(", {:.1f}% less: so few heads have less than a latent row", 100 * (1 - ratio));
}

void print_text(const DecodeBatch& batch, const Measured& measured) {
    const BatchSpec& spec = batch.spec();
    const DecodePlan& plan = batch.plan();
    fmt::print("One decode step of one attention layer, DeepSeek-V3 style\n");
    print_line("requests",
               fmt::format("{}, cached tokens {} ({} in all)", grouped(static_cast<std::int64_t>(spec.lengths.size())),
                           lengths_text(spec.lengths), grouped(spec.total_keys())));
    print_line("shape", fmt::format("{}, {} a request, dims {} / {}, page {}, {}{}", count_text(spec.h_q, "head"),
                                    count_text(spec.s_q, "query token"), spec.d_qk, spec.d_v, spec.page_size,
                                    name(spec.dtype), spec.causal ? ", causal" : ""));
    print_line("scale",
               fmt::format("{:.6g}{}; queries and cache N(0, 1), seed {}", spec.softmax_scale,
                           spec.softmax_scale == BatchOptions{}.softmax_scale() ? " = 192^-0.5, as the model uses" : "",
                           spec.seed));
    print_line("device", device_text(plan.device));
    print_line("kernel", fmt::format("{}: {}", plan.kernel, plan.reason));
    if (measured.check.rows > 0) {
        print_line("check", fmt::format("{}: {} against the double-precision oracle, largest error {:.3g} of its bound",
                                        measured.check.passed ? "PASS" : "FAIL", count_text(measured.check.rows, "row"),
                                        measured.check.worst_share));
    } else {
        print_line("check", "none (--check-rows 0, or an empty batch)");
    }
    print_line("time", fmt::format("{} (median of {}; {} to {})", time_text(measured.ms()), measured.times_ms.size(),
                                   time_text(bench::smallest(measured.times_ms)),
                                   time_text(bench::largest(measured.times_ms))));
    print_line("bandwidth",
               fmt::format("{:.4g} GB/s, {} of the copy rate measured here, {:.4g} GB/s", measured.gbps(),
                           share_text(measured.gbps(), measured.ceilings.copy_gbps), measured.ceilings.copy_gbps));
    print_line("arithmetic", fmt::format("{:.4g} TFLOPS, {} of {:.4g} TFLOPS ({})", measured.tflops(),
                                         share_text(measured.tflops(), measured.ceilings.tflops),
                                         measured.ceilings.tflops, measured.ceilings.tflops_source));
    print_line("cache", cache_text(spec, measured.prediction.kv_bytes));
}

Json to_json(const DecodeBatch& batch, const Measured& measured) {
    const BatchSpec& spec = batch.spec();
    const DecodePlan& plan = batch.plan();
    Json document = json_header("run");
    document["shape"] = shape_json(plan.shape);
    document["lengths"] = spec.lengths;
    document["total_tokens"] = spec.total_keys();
    document["softmax_scale"] = spec.softmax_scale;
    document["seed"] = spec.seed;
    document["device"] = device_json(plan.device);
    document["kernel"] = plan.kernel;
    document["reason"] = plan.reason;
    document["check"] = {{"rows", measured.check.rows},
                         {"passed", measured.check.passed},
                         {"worst_share_of_bound", measured.check.worst_share},
                         {"rel_error", measured.check.relative_error},
                         {"message", measured.check.message}};
    document["ms"] = measured.ms();
    document["times_ms"] = measured.times_ms;
    document["gbps"] = measured.gbps();
    document["tflops"] = measured.tflops();
    document["ceilings"] = ceilings_json(measured.ceilings);
    document["cache"] = {{"bytes", measured.prediction.kv_bytes}, {"mha_bytes", mha_bytes(spec)}};
    return document;
}

ExitCode run(const RunOptions& options, bool json) {
    const DeviceInfo device = choose_device(options.batch.device);
    const int threads = host_threads(options.batch);
    const std::unique_ptr<DeviceBuffers> buffers = open_device(device, threads);
    BatchSpec spec = batch_spec(options.batch, chosen_lengths(options.batch, kDefaultLengths));
    if (device.device.type == DeviceType::kCpu) spec.num_workers = threads;

    // Shares of the bar: making data, one for each timed call, the check.
    const double steps = options.repeat + 4;
    ProgressBar bar("decode step", !json);
    bar.update(0);
    const DecodeBatch batch(spec, device, *buffers, threads);
    bar.update(1 / steps);
    Measured measured;
    measured.prediction = require(predict_decode(batch.plan(), spec.lengths));
    for (int i = 0; i < kWarmUps + options.repeat; ++i) {
        const double ms = buffers->time_ms([&] { return batch.run(); });
        if (i >= kWarmUps) measured.times_ms.push_back(ms);
        bar.update((1 + i) / steps);
    }
    buffers->finish();
    if (options.check_rows > 0) measured.check = check_sample(batch, options.check_rows, spec.seed, threads);
    bar.update((steps - 1) / steps);
    measured.ceilings = measure_ceilings(device, *buffers, threads);
    bar.finish();
    if (json) {
        print_json(to_json(batch, measured));
    } else {
        print_text(batch, measured);
    }
    if (measured.check.passed) return kExitOk;
    std::fflush(stdout);
    fmt::print(stderr, "flashmla: THE RESULT IS WRONG. {}\n`flashmla verify` searches for the smallest failing case.\n",
               measured.check.message);
    return kExitCheckFailed;
}

}  // namespace

void add_run(CLI::App& app, Selected& selected) {
    CLI::App* command = add_command(app, selected, "run", "Run, check and measure one decode step over a ragged batch",
                                    {"flashmla run", "flashmla run --lengths 8192,8192,100 --heads 16 --dtype fp16",
                                     "flashmla run --trace requests.csv --requests 64 --seed 7",
                                     "flashmla run --device cuda:0 --s-q 2 --causal --json"});
    auto options = std::make_shared<RunOptions>();
    add_length_options(*command, options->batch);
    command->get_option("--lengths")
        ->description("Cached tokens of each request, separated by commas [450,18200,3100]");
    add_shape_options(*command, options->batch);
    command->add_option("--scale", options->batch.scale, "Softmax scale; 0 = 192^-0.5, as the model uses")
        ->capture_default_str();
    add_device_options(*command, options->batch);
    command->add_option("--repeat", options->repeat, "Timed calls")->check(CLI::Range(1, 10000))->capture_default_str();
    command->add_option("--check-rows", options->check_rows, "Rows held against the oracle")
        ->check(CLI::Range(0, 2147483647))
        ->capture_default_str();
    command->callback(
        [options, &selected] { selected.action = [options, &selected] { return run(*options, selected.json); }; });
}

}  // namespace flashmla::cli
