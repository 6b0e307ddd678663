// `flashmla simulate`: what the latent cache saves, whether absorbing changes the numbers, what both cost on a GPU.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>

#include "cli/command.hpp"
#include "cli/progress.hpp"
#include "cli/text.hpp"
#include "flashmla/simulator.hpp"

namespace flashmla::cli {
namespace {

struct SimulateOptions {
    SimulatorConfig config;
    SimulatorOptions simulator;
    std::int64_t batch = 8;
    std::int64_t context = 8192;
    std::string gpu = "h200";
};

// With few heads or a short head the latent row is the longer one: it then costs more, and the text says so.
std::string reduction_text(const SimulatedStep& step) {
    const double saved = 100 * (1 - 1 / step.memory_reduction_ratio);
    if (saved >= 0)
        return fmt::format("{:>9}x     {:.1f}% less to read", grouped(step.memory_reduction_ratio, 1), saved);
    return fmt::format("{:>9}x     {:.1f}% MORE to read: so few heads have less than a latent row",
                       grouped(step.memory_reduction_ratio, 2), -saved);
}

// How the ratio of times comes to differ from that of the bytes, if it does.
std::string times_text(const SimulatedStep& step, const SimulatorRoofline& roofline) {
    const double ratio = roofline.mha.ms() / roofline.latent.ms();
    const int digits = std::min(ratio, step.memory_reduction_ratio) < 2 ? 2 : 1;
    const auto binds = [](const RooflineStep& form) {
        return form.compute_ms > form.memory_ms ? "past the ridge: arithmetic binds" : "below the ridge: memory binds";
    };
    const std::string times = fmt::format("  At least {} against {} a layer and step: {:.{}f}x",
                                          time_text(roofline.latent.ms()), time_text(roofline.mha.ms()), ratio, digits);
    const std::string forms = fmt::format("the latent form does {:.0f} FLOP\n  a byte ({}), MHA {:.1f}",
                                          roofline.latent.flops / roofline.latent.bytes, binds(roofline.latent),
                                          roofline.mha.flops / roofline.mha.bytes);
    if (std::abs(ratio / step.memory_reduction_ratio - 1) < 0.005) return times + ", as the bytes: " + forms;
    return times + fmt::format(", not {:.{}f}x, because ", step.memory_reduction_ratio, digits) + forms;
}

std::string compared_text(const SimulateOptions& options, const SimulatedStep& step) {
    const bool all = step.requests_compared == options.batch && step.heads_compared == options.config.num_heads;
    const std::string what = fmt::format("{} x {} x {} tokens", count_text(step.requests_compared, "request"),
                                         count_text(step.heads_compared, "head"), grouped(options.context));
    if (all) return "every output: " + what;
    return fmt::format("only the first {} (of {} requests, {} heads)", what, grouped(options.batch),
                       grouped(options.config.num_heads));
}

std::string bound_text(const RooflineStep& step) {
    return fmt::format("{:>10} for {:>8} ({}), {:>9} for {:>5.3g} GFLOP ({})", time_text(step.memory_ms),
                       bytes_text(step.bytes), step.memory_ms >= step.compute_ms ? "binds" : "hidden",
                       time_text(step.compute_ms), step.flops / 1e9,
                       step.memory_ms >= step.compute_ms ? "hidden" : "binds");
}

void print_text(const SimulateOptions& options, const SimulatedStep& step, const SimulatorRoofline& roofline,
                const DeviceInfo& gpu, double seconds) {
    const SimulatorConfig& config = options.config;
    fmt::print("FlashMLA decoding simulator\n");
    print_line("config", fmt::format("{} heads x {} dims, latent {}, rope {}, page {}; batch {}, context {} tokens "
                                     "({} tokens in all)",
                                     config.num_heads, config.head_dim, config.latent_dim, config.rope_dim,
                                     config.page_block_size, grouped(step.batch_size), grouped(step.context_len),
                                     grouped(step.total_tokens_evaluated)));
    fmt::print("\nIngestion: cache read by one attention layer for one decode step (16-bit values, 1 MB = 2^20 B)\n");
    fmt::print("  {:<32} {:>10} MB   2 x {} x {} values a token\n", "Standard MHA KV Read Traffic",
               grouped(step.mha_memory_mb, 1), config.num_heads, config.head_dim);
    fmt::print("  {:<32} {:>10} MB   {} + {} values a token\n", "FlashMLA Latent Read Traffic",
               grouped(step.flashmla_memory_mb, 1), config.latent_dim, config.rope_dim);
    fmt::print("  {:<32} {}\n", "Reduction", reduction_text(step));
    fmt::print(
        "  The often quoted 93.3% compares with another baseline (DeepSeek 67B's grouped-query cache against\n"
        "  DeepSeek-V2's latent one), not with full multi-head attention of the same model.\n");
    fmt::print("\nParity: expanding K and V against absorbing the up-projections, fp32\n");
    print_line("compared", compared_text(options, step));
    print_line(
        "data",
        fmt::format("seed {}: cache and queries N(0, 1), up-projections N(0, 1) / sqrt({}), scale {}^-0.5; "
                    "outputs have RMS {:.3g}",
                    options.simulator.seed, config.latent_dim, config.head_dim + config.rope_dim, step.output_rms));
    print_line("difference", fmt::format("largest {:.3g}, limit {:.0e}: {}", step.numerical_max_error,
                                         kSimulatorParityLimit, step.mathematical_parity ? "PASS" : "FAIL"));
    print_line("took", fmt::format("{:.1f} s", seconds));
    fmt::print("\nImplications on one {}: {} GB/s and {} TFLOPS achievable, ridge at {:.0f} FLOP a byte\n", gpu.name,
               grouped(gpu.memory_gbps, 0), grouped(gpu.matrix_tflops, 0), roofline.ridge_flops_per_byte);
    print_line("MHA", bound_text(roofline.mha));
    print_line("FlashMLA", bound_text(roofline.latent));
    fmt::print("{}.\n", times_text(step, roofline));
}

Json roofline_json(const RooflineStep& step) {
    return {{"bytes", step.bytes},
            {"flops", step.flops},
            {"memory_ms", step.memory_ms},
            {"compute_ms", step.compute_ms},
            {"ms", step.ms()}};
}

Json to_json(const SimulateOptions& options, const SimulatedStep& step, const SimulatorRoofline& roofline,
             const DeviceInfo& gpu, double seconds) {
    Json document = json_header("simulate");
    document["config"] = {{"num_heads", options.config.num_heads},
                          {"head_dim", options.config.head_dim},
                          {"latent_dim", options.config.latent_dim},
                          {"rope_dim", options.config.rope_dim},
                          {"page_block_size", options.config.page_block_size},
                          {"seed", options.simulator.seed}};
    document["result"] = {{"batch_size", step.batch_size},
                          {"context_len", step.context_len},
                          {"total_tokens_evaluated", step.total_tokens_evaluated},
                          {"mha_memory_mb", step.mha_memory_mb},
                          {"flashmla_memory_mb", step.flashmla_memory_mb},
                          {"memory_reduction_ratio", step.memory_reduction_ratio},
                          {"numerical_max_error", step.numerical_max_error},
                          {"mathematical_parity", step.mathematical_parity}};
    document["parity"] = {{"limit", kSimulatorParityLimit},
                          {"output_rms", step.output_rms},
                          {"requests_compared", step.requests_compared},
                          {"heads_compared", step.heads_compared},
                          {"seconds", seconds}};
    document["roofline"] = {{"gpu", gpu.name},
                            {"memory_gbps", gpu.memory_gbps},
                            {"matrix_tflops", gpu.matrix_tflops},
                            {"ridge_flops_per_byte", roofline.ridge_flops_per_byte},
                            {"mha", roofline_json(roofline.mha)},
                            {"flashmla", roofline_json(roofline.latent)}};
    return document;
}

ExitCode simulate(const SimulateOptions& options, bool json) {
    const DeviceInfo gpu = require(named_device(options.gpu));
    SimulatorOptions simulator = options.simulator;
    ProgressBar bar("parity", !json);
    simulator.progress = [&bar](double fraction) { bar.update(fraction); };
    const auto started = std::chrono::steady_clock::now();
    const SimulatedStep step =
        require(simulate_decoding_step(options.config, options.batch, options.context, simulator));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    const SimulatorRoofline roofline = require(simulator_roofline(options.config, options.batch, options.context, gpu));
    bar.finish();
    if (json) {
        print_json(to_json(options, step, roofline, gpu, seconds));
    } else {
        print_text(options, step, roofline, gpu, seconds);
    }
    return step.mathematical_parity ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_simulate(CLI::App& app, Selected& selected) {
    CLI::App* command =
        add_command(app, selected, "simulate",
                    "Compare the latent cache with full multi-head attention: bytes read, numbers, least times",
                    {"flashmla simulate", "flashmla simulate --batch 1 --context 131072 --parity-heads 4",
                     "flashmla simulate --heads 16 --context 1024 --gpu h100 --json"});
    auto options = std::make_shared<SimulateOptions>();
    command->add_option("--heads", options->config.num_heads, "Attention heads")->capture_default_str();
    command->add_option("--head-dim", options->config.head_dim, "Dims of a head, rotary part not counted")
        ->capture_default_str();
    command->add_option("--latent", options->config.latent_dim, "Latent (kv_lora_rank) values a token")
        ->capture_default_str();
    command->add_option("--rope", options->config.rope_dim, "Rotary key values a token")->capture_default_str();
    command->add_option("--page", options->config.page_block_size, "Tokens a cache page")->capture_default_str();
    command->add_option("--batch", options->batch, "Requests")->capture_default_str();
    command->add_option("--context", options->context, "Cached tokens a request")->capture_default_str();
    command->add_option("--seed", options->simulator.seed, "Seed of the data")->capture_default_str();
    command->add_option("--threads", options->simulator.num_threads, "Threads; 0 = all; never changes the numbers")
        ->capture_default_str();
    command
        ->add_option("--parity-requests", options->simulator.parity_requests,
                     "Compare the first N requests only; 0 = all")
        ->capture_default_str();
    command->add_option("--parity-heads", options->simulator.parity_heads, "Compare the first N heads only; 0 = all")
        ->capture_default_str();
    command->add_option("--gpu", options->gpu, "GPU of the roofline times (h200, h100)")->capture_default_str();
    command->callback(
        [options, &selected] { selected.action = [options, &selected] { return simulate(*options, selected.json); }; });
}

}  // namespace flashmla::cli
