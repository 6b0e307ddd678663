#include "flashmla/simulator.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/cpu_isa.hpp"
#include "core/random.hpp"
#include "simulator/parity.hpp"

namespace flashmla {

namespace {

using simulator::ParityProblem;

constexpr double kBytesPerMb = 1024.0 * 1024.0;
constexpr double kBytesPerValue = 2.0;  // both caches are counted in 16-bit values

// Streams of random numbers; each tensor has its own.
enum Stream : std::uint64_t { kCacheStream = 1, kUkStream, kUvStream, kQueryStream, kPageStream };

std::uint64_t stream_seed(std::uint64_t seed, Stream stream) { return core::random_bits(seed, stream); }

Status check_positive(const char* what, std::int64_t got) {
    if (got >= 1 && got <= std::numeric_limits<std::int32_t>::max()) return {};
    return invalid_argument(std::string(what) + ": got " + std::to_string(got) +
                            ", want an integer of at least 1 (and below 2^31)");
}

Status check(const SimulatorConfig& config, std::int64_t batch_size, std::int64_t context_len) {
    const struct {
        const char* name;
        std::int64_t value;
    } fields[] = {{"num_heads", config.num_heads},   {"head_dim", config.head_dim},
                  {"latent_dim", config.latent_dim}, {"page_block_size", config.page_block_size},
                  {"batch_size", batch_size},        {"context_len", context_len}};
    for (const auto& field : fields) {
        if (Status status = check_positive(field.name, field.value); !status.ok()) return status;
    }
    if (config.rope_dim < 0 || config.rope_dim > std::numeric_limits<std::int32_t>::max()) {
        return invalid_argument("rope_dim: got " + std::to_string(config.rope_dim) +
                                ", want an integer of at least 0 (and below 2^31)");
    }
    return {};
}

// Runs work(i) for every i in [0, n) on `threads` threads.
template <class Work>
void parallel_for(std::int64_t n, int threads, const Work& work) {
    std::atomic<std::int64_t> next{0};
    const auto loop = [&] {
        for (std::int64_t i = next++; i < n; i = next++) work(i);
    };
    std::vector<std::jthread> helpers;
    for (int t = 1; t < threads; ++t) helpers.emplace_back(loop);
    loop();
}

struct SimulatorData {
    std::vector<float> w_uk, w_uv, q, cache;
    std::vector<std::int32_t> block_table;
};

void fill_normal(std::vector<float>& values, float deviation, std::uint64_t seed, const core::NormalQuantiles& normal,
                 int threads) {
    constexpr std::int64_t kChunk = 1 << 20;
    const auto size = static_cast<std::int64_t>(values.size());
    parallel_for((size + kChunk - 1) / kChunk, threads, [&](std::int64_t chunk) {
        const std::int64_t end = std::min(size, (chunk + 1) * kChunk);
        for (std::int64_t i = chunk * kChunk; i < end; ++i) values[i] = deviation * normal(seed, i);
    });
}

// Only what the compared requests and heads read is made; the values of a request or head do not depend on how many are
// compared.
SimulatorData make_data(const SimulatorConfig& config, std::int64_t requests, std::int64_t pages_per_request,
                        std::uint64_t seed, int threads) {
    const core::NormalQuantiles normal;
    SimulatorData data;
    data.w_uk.resize(config.num_heads * config.head_dim * config.latent_dim);
    data.w_uv.resize(data.w_uk.size());
    data.q.resize(requests * config.num_heads * (config.head_dim + config.rope_dim));
    data.cache.resize(requests * pages_per_request * config.page_block_size * (config.latent_dim + config.rope_dim));
    const auto weight_deviation = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.latent_dim)));
    fill_normal(data.w_uk, weight_deviation, stream_seed(seed, kUkStream), normal, threads);
    fill_normal(data.w_uv, weight_deviation, stream_seed(seed, kUvStream), normal, threads);
    fill_normal(data.q, 1.0F, stream_seed(seed, kQueryStream), normal, threads);
    fill_normal(data.cache, 1.0F, stream_seed(seed, kCacheStream), normal, threads);

    data.block_table.resize(requests * pages_per_request);
    std::iota(data.block_table.begin(), data.block_table.end(), 0);
    for (std::uint64_t i = data.block_table.size(); i > 1; --i) {  // Fisher-Yates
        std::swap(data.block_table[i - 1], data.block_table[core::random_below(stream_seed(seed, kPageStream), i, i)]);
    }
    return data;
}

// The larger one; a NaN wins and stays, so that it fails the check.
double worse(double a, double b) { return std::isnan(a) || a >= b ? a : b; }

struct ItemDifference {
    double max_error = 0;
    double sum_of_squares = 0;
};

ItemDifference compare(const simulator::ParityScratch& scratch) {
    ItemDifference difference;
    for (std::size_t d = 0; d < scratch.expanded.size(); ++d) {
        const double expanded = scratch.expanded[d];
        difference.max_error = worse(difference.max_error, std::abs(expanded - scratch.absorbed[d]));
        difference.sum_of_squares += expanded * expanded;
    }
    return difference;
}

// Refuses what would not fit before touching it: an allocation alone may succeed and end the process later.
Status check_memory(const SimulatorConfig& config, std::int64_t requests, std::int64_t context_len) {
    const double rows = static_cast<double>(requests) * static_cast<double>(context_len + config.page_block_size);
    const double weights = 2.0 * static_cast<double>(config.num_heads) * static_cast<double>(config.head_dim) *
                           static_cast<double>(config.latent_dim);
    const double need = 4.0 * (rows * static_cast<double>(config.latent_dim + config.rope_dim) + weights);
    const double have = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    if (need < 0.9 * have) return {};
    return {StatusCode::kOutOfMemory, "memory: the parity check of " + std::to_string(requests) + " requests needs " +
                                          std::to_string(static_cast<std::int64_t>(need / 1e9)) +
                                          " GB, this machine has " +
                                          std::to_string(static_cast<std::int64_t>(have / 1e9)) +
                                          " GB; compare fewer requests (parity_requests) or shorten context_len"};
}

}  // namespace

Result<SimulatedStep> simulate_decoding_step(const SimulatorConfig& config, std::int64_t batch_size,
                                             std::int64_t context_len, const SimulatorOptions& options) {
    if (Status status = check(config, batch_size, context_len); !status.ok()) return status;
    if (options.parity_requests < 0 || options.parity_requests > batch_size) {
        return invalid_argument("parity_requests: got " + std::to_string(options.parity_requests) +
                                ", want 0 (all) to batch_size = " + std::to_string(batch_size));
    }
    if (options.parity_heads < 0 || options.parity_heads > config.num_heads) {
        return invalid_argument("parity_heads: got " + std::to_string(options.parity_heads) +
                                ", want 0 (all) to num_heads = " + std::to_string(config.num_heads));
    }
    const Result<core::CpuIsa> isa = core::selected_cpu_isa();
    if (!isa.ok()) return isa.status();
    if (options.num_threads < 0) {
        return invalid_argument("num_threads: got " + std::to_string(options.num_threads) + ", want 0 (all) or more");
    }

    SimulatedStep step;
    step.batch_size = batch_size;
    step.context_len = context_len;
    step.total_tokens_evaluated = batch_size * context_len;
    const double tokens = static_cast<double>(step.total_tokens_evaluated);
    const double mha_values = 2.0 * static_cast<double>(config.num_heads) * static_cast<double>(config.head_dim);
    const double latent_values = static_cast<double>(config.latent_dim + config.rope_dim);
    step.mha_memory_mb = tokens * mha_values * kBytesPerValue / kBytesPerMb;
    step.flashmla_memory_mb = tokens * latent_values * kBytesPerValue / kBytesPerMb;
    step.memory_reduction_ratio = mha_values / latent_values;
    step.requests_compared = options.parity_requests > 0 ? options.parity_requests : batch_size;
    step.heads_compared = options.parity_heads > 0 ? options.parity_heads : config.num_heads;

    if (Status status = check_memory(config, step.requests_compared, context_len); !status.ok()) return status;
    const int threads = options.num_threads > 0 ? options.num_threads
                                                : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    const std::int64_t pages_per_request = (context_len + config.page_block_size - 1) / config.page_block_size;
    const SimulatorData data = make_data(config, step.requests_compared, pages_per_request, options.seed, threads);
    const ParityProblem problem{
        .heads = config.num_heads,
        .head_dim = config.head_dim,
        .latent_dim = config.latent_dim,
        .rope_dim = config.rope_dim,
        .page_size = config.page_block_size,
        .context_len = context_len,
        .pages_per_request = pages_per_request,
        .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim + config.rope_dim))),
        .w_uk = data.w_uk.data(),
        .w_uv = data.w_uv.data(),
        .q = data.q.data(),
        .cache = data.cache.data(),
        .block_table = data.block_table.data(),
    };

    const simulator::ParityItem item = simulator::parity_item(isa.value());
    const std::int64_t items = step.requests_compared * step.heads_compared;
    std::vector<ItemDifference> differences(items);
    std::mutex progress_mutex;
    std::int64_t done = 0;
    parallel_for(items, threads, [&](std::int64_t i) {
        thread_local simulator::ParityScratch scratch;
        // Neighboring items share a request, whose cache rows then stay in the last-level cache.
        item(problem, i / step.heads_compared, i % step.heads_compared, scratch);
        differences[i] = compare(scratch);
        const std::lock_guard lock(progress_mutex);
        ++done;
        if (options.progress) options.progress(static_cast<double>(done) / static_cast<double>(items));
    });

    double sum_of_squares = 0;
    for (const ItemDifference& difference : differences) {
        step.numerical_max_error = worse(step.numerical_max_error, difference.max_error);
        sum_of_squares += difference.sum_of_squares;
    }
    step.output_rms = std::sqrt(sum_of_squares / (static_cast<double>(items) * static_cast<double>(config.head_dim)));
    step.mathematical_parity = step.numerical_max_error < kSimulatorParityLimit;
    return step;
}

}  // namespace flashmla
