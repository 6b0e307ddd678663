// Dense prefill on every CPU path against the oracle; bits, poison, NaN, limits.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <string>
#include <vector>

#include "api/check_prefill.hpp"
#include "backends/cpu/dense_prefill.hpp"
#include "cpu/emulated_kernels.hpp"
#include "cpu/paths.hpp"
#include "flashmla/flashmla.hpp"
#include "support/prefill_case.hpp"

namespace flashmla::cpu_tests {
namespace {

using testing_support::GuardedTensor;
using testing_support::PrefillCase;
using testing_support::PrefillSpec;

PlanOptions threads(int count) {
    PlanOptions options;
    options.num_workers = count;
    return options;
}

Status run_emulated(const CpuPath& path, const DensePrefillArgs& args, int workers) {
    const Result<api::CheckedPrefill> checked = api::check_dense_prefill(args);
    if (!checked.ok()) return checked.status();
    const Result<PrefillPlan> plan = plan_prefill(checked.value().shape, query_device({}).value(), threads(workers));
    if (!plan.ok()) return plan.status();
    std::vector<float> workspace(plan.value().workspace_bytes / sizeof(float));
    core::DensePrefillCall call = checked.value().call;
    call.plan = &plan.value();
    call.workspace = workspace.data();
    const bool pairs = path.name == "emulated_avx512_bf16" && checked.value().shape.dtype == DType::kBFloat16;
    backends::cpu::dense_prefill_on(call, pairs ? emulated_avx512_bf16_kernels() : emulated_avx512_kernels());
    return {};
}

Status run_prefill(const CpuPath& path, const DensePrefillArgs& args, int workers = 2) {
    if (path.emulated) return run_emulated(path, args, workers);
    const ForcedIsa forced(path.name.c_str());
    return dense_prefill(args, threads(workers));
}

// The kernel adds up all keys of a row in one running sum.
reference::RoundingModel model_of(const CpuPath& path, DType dtype) { return reference::cpu_model(path.name, dtype); }

class Prefill : public testing::TestWithParam<CpuPath> {};

TEST_P(Prefill, FollowsTheOracle) {
    for (const PrefillSpec& spec : testing_support::prefill_families()) {
        PrefillCase c(spec);
        const Status status = run_prefill(GetParam(), c.args());
        ASSERT_TRUE(status.ok()) << spec.name << ": " << status.message();
        EXPECT_TRUE(c.matches_oracle(model_of(GetParam(), spec.dtype), kSanitized ? 7 : 3));
    }
}

TEST_P(Prefill, BitsDependOnTheRequestAlone) {
    const PrefillSpec spec{.lengths = {{40, 70}, {130, 200}, {7, 300}}, .h_q = 4, .h_kv = 2};
    PrefillCase alone(spec);
    ASSERT_TRUE(run_prefill(GetParam(), alone.args(), 1).ok());
    for (const int count : {2, 3, 16}) {
        PrefillCase again(spec);
        ASSERT_TRUE(run_prefill(GetParam(), again.args(), count).ok());
        EXPECT_TRUE(alone.out().bytes() == again.out().bytes() && alone.lse().bytes() == again.lse().bytes()) << count;
    }
    // Request 1 by itself.
    PrefillCase whole(spec);
    DensePrefillArgs args = whole.args();
    GuardedTensor cu_q(DType::kInt32, {2});
    GuardedTensor cu_kv(DType::kInt32, {2});
    cu_q.set(0, 0), cu_q.set(1, 130), cu_kv.set(0, 0), cu_kv.set(1, 200);
    const auto part = [](TensorView view, std::int64_t first, std::int64_t count) {
        view.data = static_cast<std::byte*>(view.data) +
                    first * view.stride[0] * static_cast<std::int64_t>(size_bytes(view.dtype));
        view.shape[0] = count;
        return view;
    };
    for (TensorView* view : {&args.q, &args.out, &args.lse}) *view = part(*view, 40, 130);
    for (TensorView* view : {&args.k, &args.v}) *view = part(*view, 70, 200);
    args.cu_seqlens_q = cu_q.view();
    args.cu_seqlens_kv = cu_kv.view();
    ASSERT_TRUE(run_prefill(GetParam(), args).ok());
    for (std::int64_t i = 40 * 4 * 128; i < 170 * 4 * 128; ++i) ASSERT_EQ(whole.out().get(i), alone.out().get(i)) << i;
    for (std::int64_t i = 40 * 4; i < 170 * 4; ++i) ASSERT_EQ(whole.lse().get(i), alone.lse().get(i)) << i;
}

// A NaN in a key reaches the rows that see it, and nothing else, not even through a weight of 0.
TEST_P(Prefill, HiddenKeysAndOtherHeadsNeverReachARow) {
    for (const std::int64_t heads : {1, 2, 16}) {
        const PrefillSpec spec{.lengths = {{20, 30}, {9, 9}}, .h_q = 2 * heads, .h_kv = 2};
        PrefillCase clean(spec);
        ASSERT_TRUE(run_prefill(GetParam(), clean.args()).ok());
        PrefillCase c(spec);
        const std::int64_t token = 25;  // of request 0, in KV head 1: seen by query tokens 15 to 19
        for (std::int64_t d = 0; d < spec.d_qk; ++d) c.k().set((token * 2 + 1) * spec.d_qk + d, NAN);
        for (std::int64_t d = 0; d < spec.d_v; ++d) c.v().set((token * 2 + 1) * spec.d_v + d, INFINITY);
        ASSERT_TRUE(run_prefill(GetParam(), c.args()).ok());
        for (std::int64_t row = 0; row < 29 * spec.h_q; ++row) {
            const std::int64_t t = row / spec.h_q;
            const bool sees = t >= 15 && t < 20 && row % spec.h_q >= heads;
            EXPECT_EQ(std::isnan(c.lse().get(row)), sees) << t << " " << row % spec.h_q;
            for (std::int64_t d = 0; d < spec.d_v && !sees; ++d) {
                ASSERT_EQ(c.out().get(row * spec.d_v + d), clean.out().get(row * spec.d_v + d)) << t;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Paths, Prefill, testing::ValuesIn(cpu_paths()),
                         [](const testing::TestParamInfo<CpuPath>& info) { return info.param.name; });

TEST(PrefillPlan, WorkspaceDoesNotGrowWithLengths) {
    PrefillShape shape{.b = 1, .total_q = 100, .total_kv = 100, .max_seqlen_q = 100, .max_seqlen_kv = 100};
    DeviceInfo device = query_device({}).value();
    device.num_processors = 128;
    const PrefillPlan small = plan_prefill(shape, device).value();
    shape.total_q = shape.total_kv = shape.max_seqlen_q = shape.max_seqlen_kv = 1 << 20;
    const PrefillPlan large = plan_prefill(shape, device).value();
    EXPECT_EQ(small.workspace_bytes, large.workspace_bytes);
    EXPECT_LT(large.workspace_bytes, std::size_t{64} << 20);
    EXPECT_EQ(large.kernel, "cpu_dense_prefill");
}

}  // namespace
}  // namespace flashmla::cpu_tests
