#include "flashmla/simulator.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/cpu_isa.hpp"
#include "core/random.hpp"
#include "simulator/parity.hpp"

namespace flashmla {
namespace {

SimulatorConfig small_config() {
    return {.num_heads = 3, .head_dim = 24, .latent_dim = 40, .rope_dim = 8, .page_block_size = 16};
}

TEST(Simulator, TrafficOfThePublishedConfiguration) {
    SimulatorOptions options;
    options.parity_requests = 1;
    options.parity_heads = 1;
    const Result<SimulatedStep> result = simulate_decoding_step({}, 8, 8192, options);
    ASSERT_TRUE(result.ok()) << result.status().message();
    const SimulatedStep& step = result.value();
    EXPECT_EQ(step.total_tokens_evaluated, 65536);
    EXPECT_EQ(step.mha_memory_mb, 4096.0);
    EXPECT_EQ(step.flashmla_memory_mb, 72.0);
    EXPECT_DOUBLE_EQ(step.memory_reduction_ratio, 32768.0 / 576.0);
    EXPECT_LT(step.numerical_max_error, kSimulatorParityLimit);
    EXPECT_TRUE(step.mathematical_parity);
    EXPECT_EQ(step.requests_compared, 1);
    EXPECT_EQ(step.heads_compared, 1);
}

TEST(Simulator, BothWaysAgreeAndAreNotTriviallyZero) {
    for (const std::int64_t context : {1, 5, 16, 95, 96, 97, 200}) {
        const Result<SimulatedStep> result = simulate_decoding_step(small_config(), 2, context);
        ASSERT_TRUE(result.ok());
        EXPECT_LT(result.value().numerical_max_error, kSimulatorParityLimit) << context;
        EXPECT_GT(result.value().output_rms, 0.05) << context;
        EXPECT_EQ(result.value().heads_compared, 3);
    }
}

TEST(Simulator, NumbersDoNotDependOnThreads) {
    SimulatorOptions one;
    one.num_threads = 1;
    SimulatorOptions five;
    five.num_threads = 5;
    const SimulatedStep a = simulate_decoding_step(small_config(), 3, 130, one).value();
    const SimulatedStep b = simulate_decoding_step(small_config(), 3, 130, five).value();
    EXPECT_EQ(a.numerical_max_error, b.numerical_max_error);
    EXPECT_EQ(a.output_rms, b.output_rms);
}

TEST(Simulator, SeedChangesTheData) {
    SimulatorOptions other;
    other.seed = 1;
    EXPECT_NE(simulate_decoding_step(small_config(), 1, 50).value().output_rms,
              simulate_decoding_step(small_config(), 1, 50, other).value().output_rms);
}

TEST(Simulator, ProgressEndsAtOne) {
    double last = 0;
    SimulatorOptions options;
    options.progress = [&](double fraction) {
        EXPECT_GE(fraction, last);
        last = fraction;
    };
    ASSERT_TRUE(simulate_decoding_step(small_config(), 2, 10, options).ok());
    EXPECT_EQ(last, 1.0);
}

TEST(Simulator, BadValuesNameTheArgument) {
    const auto message = [](SimulatorConfig config, std::int64_t batch, std::int64_t context) {
        const Result<SimulatedStep> result = simulate_decoding_step(config, batch, context);
        EXPECT_FALSE(result.ok());
        EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
        return result.status().message();
    };
    EXPECT_NE(message({.num_heads = 0}, 1, 1).find("num_heads"), std::string::npos);
    EXPECT_NE(message({.head_dim = -1}, 1, 1).find("head_dim"), std::string::npos);
    EXPECT_NE(message({.latent_dim = 0}, 1, 1).find("latent_dim"), std::string::npos);
    EXPECT_NE(message({.rope_dim = -1}, 1, 1).find("rope_dim"), std::string::npos);
    EXPECT_NE(message({.page_block_size = 0}, 1, 1).find("page_block_size"), std::string::npos);
    EXPECT_NE(message({}, 0, 1).find("batch_size"), std::string::npos);
    EXPECT_NE(message({}, 1, 0).find("context_len"), std::string::npos);
    EXPECT_EQ(simulate_decoding_step({}, 1 << 30, 1 << 30).status().code(), StatusCode::kOutOfMemory);
}

TEST(Simulator, RooflineIsBytesAndFlopsOverRates) {
    DeviceInfo device;
    device.memory_gbps = 1000;
    device.matrix_tflops = 100;
    const SimulatorRoofline roofline = simulator_roofline({}, 8, 8192, device).value();
    EXPECT_DOUBLE_EQ(roofline.mha.bytes, 4096.0 * 1024 * 1024);
    EXPECT_DOUBLE_EQ(roofline.latent.bytes, 72.0 * 1024 * 1024);
    EXPECT_DOUBLE_EQ(roofline.latent.flops, 2.0 * 65536 * 128 * 1088);
    EXPECT_DOUBLE_EQ(roofline.mha.flops, 2.0 * 65536 * 128 * 320);
    EXPECT_DOUBLE_EQ(roofline.mha.ms(), roofline.mha.bytes / 1e9);
    EXPECT_DOUBLE_EQ(roofline.latent.ms(), roofline.latent.flops / 1e11);
    EXPECT_DOUBLE_EQ(roofline.ridge_flops_per_byte, 100.0);
    device.memory_gbps = 0;
    EXPECT_FALSE(simulator_roofline({}, 8, 8192, device).ok());
}

// Every path this processor runs against plain loops in double precision, which know nothing of pages, tiles or panels.
TEST(SimulatorParity, PathsAgreeWithPlainLoops) {
    constexpr std::int64_t kHeads = 2, kHeadDim = 20, kLatent = 37, kRope = 5, kPage = 7, kContext = 103;
    constexpr std::int64_t kRow = kLatent + kRope, kQuery = kHeadDim + kRope, kPages = (kContext + kPage - 1) / kPage;
    const core::NormalQuantiles normal;
    std::uint64_t seed = 0;
    const auto random = [&](std::int64_t n) {
        std::vector<float> values(n);
        ++seed;
        for (std::int64_t i = 0; i < n; ++i) values[i] = 0.7F * normal(seed, i);
        return values;
    };
    const std::vector<float> w_uk = random(kHeads * kHeadDim * kLatent), w_uv = random(kHeads * kHeadDim * kLatent);
    const std::vector<float> q = random(kHeads * kQuery), cache = random(kPages * kPage * kRow);
    std::vector<std::int32_t> table(kPages);
    for (std::int64_t i = 0; i < kPages; ++i) table[i] = static_cast<std::int32_t>(kPages - 1 - i);

    for (const core::CpuIsa isa : core::kAllCpuIsas) {
        if (isa > core::detect_cpu_isa()) continue;
        for (std::int64_t head = 0; head < kHeads; ++head) {
            const simulator::ParityProblem problem{.heads = kHeads,
                                                   .head_dim = kHeadDim,
                                                   .latent_dim = kLatent,
                                                   .rope_dim = kRope,
                                                   .page_size = kPage,
                                                   .context_len = kContext,
                                                   .pages_per_request = kPages,
                                                   .scale = 0.2F,
                                                   .w_uk = w_uk.data(),
                                                   .w_uv = w_uv.data(),
                                                   .q = q.data(),
                                                   .cache = cache.data(),
                                                   .block_table = table.data()};
            simulator::ParityScratch scratch;
            simulator::parity_item(isa)(problem, 0, head, scratch);

            std::vector<double> out(kHeadDim, 0.0);
            double total = 0;
            for (std::int64_t t = 0; t < kContext; ++t) {
                const float* row = cache.data() + ((kPages - 1 - t / kPage) * kPage + t % kPage) * kRow;
                const auto project = [&](const std::vector<float>& w, std::int64_t d) {
                    double sum = 0;
                    for (std::int64_t l = 0; l < kLatent; ++l)
                        sum += double{w[(head * kHeadDim + d) * kLatent + l]} * row[l];
                    return sum;
                };
                double score = 0;
                for (std::int64_t d = 0; d < kHeadDim; ++d) score += q[head * kQuery + d] * project(w_uk, d);
                for (std::int64_t d = 0; d < kRope; ++d)
                    score += double{q[head * kQuery + kHeadDim + d]} * row[kLatent + d];
                const double weight = std::exp(double{0.2F} * score);
                total += weight;
                for (std::int64_t d = 0; d < kHeadDim; ++d) out[d] += weight * project(w_uv, d);
            }
            for (std::int64_t d = 0; d < kHeadDim; ++d) {
                EXPECT_NEAR(scratch.expanded[d], out[d] / total, 2e-5) << name(isa);
                EXPECT_NEAR(scratch.absorbed[d], out[d] / total, 2e-5) << name(isa);
            }
        }
    }
}

}  // namespace
}  // namespace flashmla
