// What a call may cost and when it is refused: workspace, allocations, forced paths; and the accuracy of 2^x.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <thread>

#include "backends/cpu/latent_attention.hpp"
#include "backends/cpu/vector.hpp"
#include "core/cpu_isa.hpp"
#include "cpu/allocations.hpp"
#include "cpu/paths.hpp"
#include "reference/decode_case.hpp"

namespace flashmla::cpu_tests {
namespace {

reference::DecodeSpec ragged_spec() {
    reference::DecodeSpec spec;
    spec.lengths = {4500, 0, 65, 2048};
    spec.s_q = 2;
    spec.h_q = 20;
    spec.causal = true;
    return spec;
}

// A plan for a case, with memory for its workspace.
struct Planned {
    DecodePlan plan;
    std::vector<float> workspace;

    Planned(const DecodeArgs& args, int num_workers) {
        const DeviceInfo device = query_device(args.q.device).value();
        plan = plan_decode(decode_shape(args).value(), device,
                           {.batch_invariant = false, .kernel = {}, .num_workers = num_workers})
                   .value();
        workspace.resize(plan.workspace_bytes / sizeof(float) + 64);
    }
    void* aligned_workspace() {
        const auto address = reinterpret_cast<std::uintptr_t>(workspace.data());
        return reinterpret_cast<void*>((address + 255) / 256 * 256);
    }
    Status run(const DecodeArgs& args) { return run_decode(plan, args, aligned_workspace(), plan.workspace_bytes); }
};

TEST(Limits, TheWorkspaceStaysBelow64MegabytesAtAnyLength) {
    for (int threads : {1, 2, 16, 64, 128, 4096}) {
        EXPECT_LT(backends::cpu::latent_workspace_bytes(576, 512, threads), 64'000'000u) << threads << " threads";
    }
    DecodeShape small{.b = 1, .h_q = 1, .max_pages = 1};
    DecodeShape large{.b = 100'000, .s_q = 128, .h_q = 128, .max_pages = 1 << 24};
    const DeviceInfo device = query_device(Device{}).value();
    EXPECT_EQ(plan_decode(small, device).value().workspace_bytes, plan_decode(large, device).value().workspace_bytes);
}

TEST(Limits, ARunOnOneThreadAllocatesNothing) {
    reference::DecodeCase c(ragged_spec());
    const DecodeArgs args = c.args();
    Planned planned(args, 1);
    const std::int64_t before = allocation_count();
    const bool ok = planned.run(args).ok();
    EXPECT_EQ(allocation_count() - before, 0);
    EXPECT_TRUE(ok);
}

TEST(Limits, ConcurrentRunsOfOnePlanDoNotMeet) {
    reference::DecodeCase first(ragged_spec()), second(ragged_spec());
    const DecodeArgs args[2] = {first.args(), second.args()};
    Planned planned(args[0], 2);
    Planned other = planned;
    std::thread helper([&] {
        EXPECT_TRUE(run_decode(planned.plan, args[1], other.aligned_workspace(), planned.plan.workspace_bytes).ok());
    });
    EXPECT_TRUE(planned.run(args[0]).ok());
    helper.join();
    EXPECT_EQ(first.out(), second.out());
    EXPECT_EQ(first.structural_fault(), "");
}

TEST(Limits, AForcedPathThatCannotRunIsRefusedAndNothingIsWritten) {
    reference::DecodeCase c(ragged_spec());
    const std::vector<std::uint16_t> before = c.out();
    {
        const ForcedIsa forced("sse9");
        const Status status = decode(c.args());
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_NE(status.message().find("FLASHMLA_CPU_ISA: got 'sse9'"), std::string::npos) << status.message();
    }
    if (core::detect_cpu_isa() < core::CpuIsa::kAvx512Bf16) {
        const ForcedIsa forced("avx512_bf16");
        const Status status = decode(c.args());
        EXPECT_EQ(status.code(), StatusCode::kUnsupported);
        EXPECT_NE(status.message().find("FLASHMLA_CPU_ISA: got avx512_bf16"), std::string::npos) << status.message();
    }
    EXPECT_EQ(c.out(), before);
}

struct FourLanes {
    static constexpr int kLanes = 4;
    using F = backends::cpu::Lanes<kLanes>::Float;
    static F multiply_add_f32(F a, F b, F c) { return a * b + c; }
};

float exp2_of(float x) { return backends::cpu::exp2_nonpositive<FourLanes>(backends::cpu::splat<FourLanes>(x))[0]; }

TEST(Exp2, IsAccurateToAnUlp) {
    double worst = 0;
    for (int i = 0; i <= 4'000'000; ++i) {
        const float x = -126.0f * static_cast<float>(i) / 4'000'000.0f;
        const double exact = std::exp2(static_cast<double>(x));
        worst = std::max(worst, std::abs(exp2_of(x) - exact) / exact);
    }
    EXPECT_LT(worst, 0x1p-23);
}

TEST(Exp2, EndsWell) {
    EXPECT_EQ(exp2_of(0.0f), 1.0f);
    EXPECT_EQ(exp2_of(-0.0f), 1.0f);
    EXPECT_EQ(exp2_of(-1.0f), 0.5f);
    for (float x : {-127.0f, -150.0f, -1e30f, -std::numeric_limits<float>::infinity()})
        EXPECT_EQ(exp2_of(x), 0.0f) << x;
    EXPECT_TRUE(std::isnan(exp2_of(std::nanf(""))));
}

}  // namespace
}  // namespace flashmla::cpu_tests
