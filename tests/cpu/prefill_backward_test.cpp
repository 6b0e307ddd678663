// The backward of dense prefill against the oracle; bits, NaN, memory.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/paths.hpp"
#include "flashmla/flashmla.hpp"
#include "reference/prefill_backward.hpp"
#include "support/prefill_case.hpp"

namespace flashmla::cpu_tests {
namespace {

using testing_support::GuardedTensor;
using testing_support::PrefillCase;
using testing_support::PrefillSpec;

Status run_both(const CpuPath& path, PrefillCase& c, int workers = 2, bool with_dlse = true) {
    const ForcedIsa forced(path.name.c_str());
    PlanOptions options;
    options.num_workers = workers;
    DensePrefillBackwardArgs args = c.backward_args();
    if (!with_dlse) args.dlse = {};
    const Status status = dense_prefill(args.forward, options);
    return status.ok() ? dense_prefill_backward(args, options) : status;
}

testing::AssertionResult within(const GuardedTensor& got, const reference::Gradient& want, const char* name) {
    if (const std::string fault = got.output_fault(name); !fault.empty()) return testing::AssertionFailure() << fault;
    for (std::int64_t i = 0; i < got.elements(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (std::abs(got.get(i) - want.value[at]) <= want.bound[at] && std::isfinite(want.bound[at])) continue;
        return testing::AssertionFailure() << name << "[" << i << "] " << got.get(i) << " instead of " << want.value[at]
                                           << ", bound " << want.bound[at];
    }
    return testing::AssertionSuccess();
}

bool same_bytes(PrefillCase& a, PrefillCase& b) {
    return a.dq().bytes() == b.dq().bytes() && a.dk().bytes() == b.dk().bytes() && a.dv().bytes() == b.dv().bytes();
}

class PrefillBackward : public testing::TestWithParam<CpuPath> {};

TEST_P(PrefillBackward, FollowsTheOracle) {
    int number = 0;
    for (const PrefillSpec& spec : testing_support::prefill_families()) {
        const bool with_dlse = ++number % 2 == 0;
        if (kSanitized && number % 4 > 1) continue;  // the oracle takes most of the time
        SCOPED_TRACE(spec.name);
        PrefillCase c(spec);
        const Status status = run_both(GetParam(), c, 2, with_dlse);
        ASSERT_TRUE(status.ok()) << status.message();
        DensePrefillBackwardArgs args = c.backward_args();
        if (!with_dlse) args.dlse = {};
        const reference::Gradients want = reference::prefill_backward(args, reference::Forward::kAsStored);
        EXPECT_TRUE(within(c.dq(), want.dq, "dq"));
        EXPECT_TRUE(within(c.dk(), want.dk, "dk"));
        EXPECT_TRUE(within(c.dv(), want.dv, "dv"));
    }
}

TEST_P(PrefillBackward, BitsDoNotDependOnThreads) {
    const PrefillSpec spec{.lengths = {{40, 70}, {130, 200}, {0, 5}, {7, 300}}, .h_q = 4, .h_kv = 2};
    PrefillCase one(spec);
    ASSERT_TRUE(run_both(GetParam(), one, 1).ok());
    for (const int workers : {2, 5, 32}) {
        PrefillCase more(spec);
        ASSERT_TRUE(run_both(GetParam(), more, workers).ok());
        EXPECT_TRUE(same_bytes(one, more)) << workers;
    }
}

// NaN in one pair of (request, KV head) stays there; a hidden key's NaN does not reach the rows that do not see it.
TEST_P(PrefillBackward, NanStaysWithTheRowsThatSeeIt) {
    const PrefillSpec spec{.lengths = {{20, 30}, {9, 9}}, .h_q = 4, .h_kv = 2};
    PrefillCase c(spec);
    const std::int64_t token = 25;  // of request 0, in KV head 1: seen by query tokens 15 to 19
    for (std::int64_t d = 0; d < spec.d_qk; ++d) c.k().set((token * 2 + 1) * spec.d_qk + d, NAN);
    for (std::int64_t d = 0; d < spec.d_v; ++d) c.v().set((token * 2 + 1) * spec.d_v + d, NAN);
    ASSERT_TRUE(run_both(GetParam(), c).ok());
    for (std::int64_t row = 0; row < 29 * 4; ++row) {
        const std::int64_t t = row / 4;
        const bool sees = t >= 15 && t < 20 && row % 4 >= 2;
        for (std::int64_t d = 0; d < spec.d_qk; ++d) {
            ASSERT_EQ(std::isfinite(c.dq().get(row * spec.d_qk + d)), !sees) << t << " " << row % 4;
        }
    }
    for (std::int64_t row = 0; row < 39 * 2; ++row) {
        // Keys of the same request and head are seen by a poisoned row as well.
        const bool poisoned = row / 2 < 30 && row % 2 == 1;
        ASSERT_EQ(std::isfinite(c.dv().get(row * spec.d_v)), !poisoned) << row / 2 << " " << row % 2;
        ASSERT_EQ(std::isfinite(c.dk().get(row * spec.d_qk)), !poisoned) << row / 2 << " " << row % 2;
    }
}

INSTANTIATE_TEST_SUITE_P(Native, PrefillBackward, testing::ValuesIn(native_paths()),
                         [](const testing::TestParamInfo<CpuPath>& info) { return info.param.name; });

TEST(PrefillBackwardPlan, MemoryStaysUnder64MegabytesAtAnyLength) {
    DeviceInfo device = query_device({}).value();
    device.num_processors = 128;
    PrefillShape shape{.operation = Operation::kDensePrefillBackward, .total_q = 1 << 20, .total_kv = 1 << 20};
    shape.max_seqlen_q = shape.max_seqlen_kv = 1 << 20;
    const Result<PrefillPlan> plan = plan_prefill(shape, device);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_LT(plan.value().workspace_bytes, std::size_t{64} << 20);
}

}  // namespace
}  // namespace flashmla::cpu_tests
