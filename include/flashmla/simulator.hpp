// The decoding simulator: what caching one latent vector a token saves against caching keys and values for every head,
// and whether computing on the latent directly gives the same numbers. Everything runs on the CPU, in fp32.
#pragma once

#include <cstdint>
#include <functional>

#include "flashmla/device.hpp"
#include "flashmla/status.hpp"

namespace flashmla {

struct SimulatorConfig {
    std::int64_t num_heads = 128;
    std::int64_t head_dim = 128;    // of an unabsorbed head, without its rotary part
    std::int64_t latent_dim = 512;  // kv_lora_rank
    std::int64_t rope_dim = 64;
    std::int64_t page_block_size = 64;  // tokens a cache page
};

struct SimulatorOptions {
    std::uint64_t seed = 0;
    int num_threads = 0;                   // 0 = every hardware thread; never changes the numbers
    std::int64_t parity_requests = 0;      // compare the first n requests only; 0 = all
    std::int64_t parity_heads = 0;         // compare the first n heads only; 0 = all
    std::function<void(double)> progress;  // called now and then with the fraction done, from one thread at a time
};

// The parity check passes below this difference.
inline constexpr double kSimulatorParityLimit = 1e-5;

struct SimulatedStep {
    std::int64_t batch_size = 0;
    std::int64_t context_len = 0;
    std::int64_t total_tokens_evaluated = 0;  // batch_size * context_len
    double mha_memory_mb = 0;                 // 2 * heads * head_dim 16-bit values a token, in MiB
    double flashmla_memory_mb = 0;            // latent + rope 16-bit values a token, in MiB
    double memory_reduction_ratio = 0;
    // Largest difference of any output element between the two ways, over the requests and heads compared.
    double numerical_max_error = 0;
    bool mathematical_parity = false;  // numerical_max_error < kSimulatorParityLimit
    double output_rms = 0;             // size of the outputs compared, to read the difference against
    std::int64_t requests_compared = 0;
    std::int64_t heads_compared = 0;
};

// One decode step of batch_size requests with context_len cached tokens each.
//
// The data: latent and rotary cache rows and queries are standard normal, the up-projections W_UK and W_UV normal with
// deviation latent_dim ** -0.5 (so keys and values are of size 1 too), the scale is (head_dim + rope_dim) ** -0.5.
// Pages are permuted. Expanding computes k = W_UK c and v = W_UV c for every token and attends over them; absorbing
// computes W_UK^T q once, attends over the cached rows and projects the result with W_UV. Both stream the tokens with
// an online softmax, so the memory needed is the fp32 cache plus the weights: 0.22 GB for the default configuration at
// 8 x 8,192 tokens.
Result<SimulatedStep> simulate_decoding_step(const SimulatorConfig& config, std::int64_t batch_size,
                                             std::int64_t context_len, const SimulatorOptions& options = {});

// The least time one attention layer's step can take on a device, from bytes over memory_gbps and FLOPs over
// matrix_tflops.
struct RooflineStep {
    double bytes = 0;
    double flops = 0;
    double memory_ms = 0;
    double compute_ms = 0;
    double ms() const { return memory_ms > compute_ms ? memory_ms : compute_ms; }
};

struct SimulatorRoofline {
    RooflineStep mha;                 // cached keys and values, one query token
    RooflineStep latent;              // the absorbed form over the latent cache
    double ridge_flops_per_byte = 0;  // where the device goes from memory-bound to compute-bound
};

// kInvalidArgument when the device's memory_gbps or matrix_tflops is not known.
Result<SimulatorRoofline> simulator_roofline(const SimulatorConfig& config, std::int64_t batch_size,
                                             std::int64_t context_len, const DeviceInfo& device);

}  // namespace flashmla
