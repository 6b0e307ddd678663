// Options that run, plan and bench share: the shape of a decode call, its lengths, where it runs.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/lengths.hpp"
#include "cli/decode_batch.hpp"
#include "flashmla/device.hpp"

namespace flashmla::cli {

// The scale of DeepSeek-V3 and its relatives: that of the unabsorbed head, whose dims are 128 + 64.
inline constexpr double kModelHeadDim = 192;

struct BatchOptions {
    std::int64_t heads = 128;
    std::int64_t s_q = 1;
    std::int64_t d_qk = 576;
    std::int64_t d_v = 512;
    std::int64_t page = 64;
    std::string dtype = "bf16";
    bool causal = false;
    bool batch_invariant = false;
    std::string kernel;
    double scale = 0;  // 0 = kModelHeadDim ** -0.5

    std::string lengths;
    std::string lengths_file;
    std::string trace;
    std::int64_t requests = 16;
    std::uint64_t seed = 0;

    std::string device = "auto";
    int threads = 0;

    double softmax_scale() const;
    DType dtype_value() const;
};

void add_shape_options(CLI::App& command, BatchOptions& options);
void add_length_options(CLI::App& command, BatchOptions& options);
void add_device_options(CLI::App& command, BatchOptions& options);  // --threads among them
void add_thread_option(CLI::App& command, BatchOptions& options);

// Lengths from --lengths, --lengths-file or --trace (at most one of them), else `otherwise`.
bench::Lengths chosen_lengths(const BatchOptions& options, const std::string& otherwise);

BatchSpec batch_spec(const BatchOptions& options, bench::Lengths lengths);

// Threads to use on the host: --threads, or every one this process may use.
int host_threads(const BatchOptions& options);

nlohmann::ordered_json device_json(const DeviceInfo& device);
nlohmann::ordered_json shape_json(const DecodeShape& shape);

// "avx2, 2 threads" or "sm_90, 132 SMs"
std::string device_text(const DeviceInfo& device);

}  // namespace flashmla::cli
