#include "cli/batch_options.hpp"

#include <fmt/core.h>

#include <cmath>

#include "cli/exit_codes.hpp"
#include "cli/text.hpp"

namespace flashmla::cli {

double BatchOptions::softmax_scale() const { return scale != 0 ? scale : 1 / std::sqrt(kModelHeadDim); }

DType BatchOptions::dtype_value() const { return dtype == "fp16" ? DType::kFloat16 : DType::kBFloat16; }

void add_shape_options(CLI::App& command, BatchOptions& options) {
    command.add_option("--heads", options.heads, "Query heads")
        ->check(CLI::Range(1, 2147483647))
        ->capture_default_str();
    command.add_option("--s-q", options.s_q, "Query tokens a request")
        ->check(CLI::Range(1, 2147483647))
        ->capture_default_str();
    command.add_option("--d-qk", options.d_qk, "Dims of a query and of a cached row")
        ->check(CLI::Range(1, 2147483647))
        ->capture_default_str();
    command.add_option("--d-v", options.d_v, "Dims of an output row")
        ->check(CLI::Range(1, 2147483647))
        ->capture_default_str();
    command.add_option("--page", options.page, "Tokens a cache page")
        ->check(CLI::Range(1, 2147483647))
        ->capture_default_str();
    command.add_option("--dtype", options.dtype, "Element type of query, cache and output")
        ->check(CLI::IsMember({"bf16", "fp16"}))
        ->capture_default_str();
    command.add_flag("--causal", options.causal, "Query token i sees keys [0, length - s_q + i + 1)");
    command.add_flag("--batch-invariant", options.batch_invariant, "A request's bits do not depend on its batch mates");
    command.add_option("--kernel", options.kernel,
                       "Force a kernel of the catalogue by name (flashmla info lists them)");
}

void add_length_options(CLI::App& command, BatchOptions& options) {
    CLI::Option* lengths =
        command.add_option("--lengths", options.lengths, "Cached tokens of each request, separated by commas");
    CLI::Option* file =
        command.add_option("--lengths-file", options.lengths_file, "Lengths from a JSON array or a CSV file")
            ->check(CLI::ExistingFile);
    CLI::Option* trace =
        command
            .add_option(
                "--trace", options.trace,
                "Requests from a CSV file with columns arrival_ms,input_tokens,output_tokens; the cached tokens of "
                "one are its input and a random part of its output")
            ->check(CLI::ExistingFile);
    lengths->excludes(file)->excludes(trace);
    file->excludes(trace);
    command.add_option("--requests", options.requests, "Requests picked from --trace")
        ->check(CLI::Range(1, 2147483647))
        ->capture_default_str();
    command.add_option("--seed", options.seed, "Seed of data and picks")->capture_default_str();
}

void add_device_options(CLI::App& command, BatchOptions& options) {
    command.add_option("--device", options.device, "auto (a GPU when there is one), cpu, cuda or cuda:N")
        ->capture_default_str();
    add_thread_option(command, options);
}

void add_thread_option(CLI::App& command, BatchOptions& options) {
    command.add_option("--threads", options.threads, "CPU threads; 0 = all this process may use")
        ->check(CLI::Range(0, 4096))
        ->capture_default_str();
}

bench::Lengths chosen_lengths(const BatchOptions& options, const std::string& otherwise) {
    if (!options.lengths_file.empty()) return require(bench::read_lengths_file(options.lengths_file));
    if (!options.trace.empty()) {
        return bench::pick_from_trace(require(bench::read_trace(options.trace)), options.requests, options.seed);
    }
    return require(bench::parse_lengths(options.lengths.empty() ? otherwise : options.lengths));
}

BatchSpec batch_spec(const BatchOptions& options, bench::Lengths lengths) {
    return {.lengths = std::move(lengths),
            .s_q = options.s_q,
            .h_q = options.heads,
            .d_qk = options.d_qk,
            .d_v = options.d_v,
            .page_size = options.page,
            .dtype = options.dtype_value(),
            .causal = options.causal,
            .softmax_scale = options.softmax_scale(),
            .seed = options.seed,
            .batch_invariant = options.batch_invariant,
            .kernel = options.kernel};
}

int host_threads(const BatchOptions& options) {
    return options.threads > 0 ? options.threads : require(query_device({DeviceType::kCpu, 0})).num_processors;
}

nlohmann::ordered_json device_json(const DeviceInfo& device) {
    return {{"device", device.device.type == DeviceType::kCpu ? "cpu" : fmt::format("cuda:{}", device.device.index)},
            {"name", device.name},
            {"arch", device.arch},
            {"num_processors", device.num_processors},
            {"l2_bytes", device.l2_bytes},
            {"memory_gbps", device.memory_gbps},
            {"matrix_tflops", device.matrix_tflops}};
}

nlohmann::ordered_json shape_json(const DecodeShape& shape) {
    return {{"b", shape.b},
            {"s_q", shape.s_q},
            {"h_q", shape.h_q},
            {"h_kv", shape.h_kv},
            {"d_qk", shape.d_qk},
            {"d_v", shape.d_v},
            {"page_size", shape.page_size},
            {"max_pages", shape.max_pages},
            {"dtype", name(shape.dtype)},
            {"causal", shape.causal}};
}

std::string device_text(const DeviceInfo& device) {
    const bool cpu = device.device.type == DeviceType::kCpu;
    return fmt::format("{} ({}, {})", device.name, device.arch,
                       cpu ? count_text(device.num_processors, "thread") : count_text(device.num_processors, "SM"));
}

}  // namespace flashmla::cli
