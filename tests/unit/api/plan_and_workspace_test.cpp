// A plan serves the shapes and the device it was made for, with a workspace that is large enough and aligned.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "unit/api/api_case.hpp"

namespace flashmla::test {
namespace {

class RunDecode : public testing::Test {
protected:
    void expect_refused(const DecodePlan& plan, const DecodeArgs& args, void* workspace, std::size_t bytes,
                        const char* part) {
        const Status status = run_decode(plan, args, workspace, bytes);
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_NE(status.message().find(part), std::string::npos) << "'" << part << "' in: " << status.message();
        EXPECT_TRUE(api_.outputs_untouched());
    }
    ApiCase api_;
    DecodePlan plan_ = cpu_plan(api_.args());
    Workspace workspace_{plan_.workspace_bytes};
};

TEST_F(RunDecode, RefusesAnEmptyPlan) {
    expect_refused(DecodePlan{}, api_.args(), workspace_.data(), plan_.workspace_bytes, "plan: got an empty one");
}

TEST_F(RunDecode, RefusesAPlanForAnotherShape) {
    const struct {
        const char* what;
        std::function<void(DecodeShape&)> change;
    } changes[] = {
        {"plan: made for b = 4, the arguments have b = 3", [](DecodeShape& s) { s.b = 4; }},
        {"plan: made for s_q = 1", [](DecodeShape& s) { s.s_q = 1; }},
        {"plan: made for h_q = 6", [](DecodeShape& s) { s.h_q = 6; }},
        {"plan: made for d_qk = 576", [](DecodeShape& s) { s.d_qk = 576, s.d_v = 512; }},
        {"plan: made for page_size = 64", [](DecodeShape& s) { s.page_size = 64; }},
        {"plan: made for max_pages = 1000", [](DecodeShape& s) { s.max_pages = 1000; }},
        {"plan: made for causal = 1", [](DecodeShape& s) { s.causal = true; }},
        {"plan: made for dtype float16, the tensors have bfloat16",
         [](DecodeShape& s) {
             s.dtype = DType::kFloat16;
             s.format = CacheFormat::kFloat16;
         }},
    };
    for (const auto& change : changes) {
        DecodeShape shape = plan_.shape;
        change.change(shape);
        const Result<DecodePlan> other = plan_decode(shape, plan_.device);
        ASSERT_TRUE(other.ok()) << other.status().message();
        const Workspace workspace(other.value().workspace_bytes);
        expect_refused(other.value(), api_.args(), workspace.data(), other.value().workspace_bytes, change.what);
    }
}

TEST_F(RunDecode, RefusesAPlanForAnotherDevice) {
    const ApiCase gpu_shaped(reference::DecodeSpec{.name = "gpu", .lengths = {70}});
    const Result<DecodePlan> plan = plan_decode(decode_shape(gpu_shaped.args()).value(), named_device("h200").value());
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Workspace workspace(plan.value().workspace_bytes);
    const Status status = run_decode(plan.value(), gpu_shaped.args(), workspace.data(), plan.value().workspace_bytes);
    EXPECT_EQ(status.message(), "plan: made for device cuda:0, the tensors are on cpu");
}

TEST_F(RunDecode, RefusesABadWorkspace) {
    ASSERT_GT(plan_.workspace_bytes, 256u);
    const DecodeArgs args = api_.args();
    expect_refused(plan_, args, workspace_.data(), plan_.workspace_bytes - 1, "workspace_bytes: got ");
    expect_refused(plan_, args, workspace_.data(), 0, "workspace_bytes: got 0");
    expect_refused(plan_, args, nullptr, plan_.workspace_bytes, "workspace: got a null pointer");
    expect_refused(plan_, args, workspace_.data() + 64, plan_.workspace_bytes, "workspace: got an address");
}

TEST_F(RunDecode, TakesTheExactWorkspaceAndALargerOne) {
    for (const std::size_t bytes : {plan_.workspace_bytes, plan_.workspace_bytes + 1}) {
        api_.decode_case().reset_outputs();
        const Status status = run_decode(plan_, api_.args(), workspace_.data(), bytes);
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(api_.decode_case().structural_fault(), "");
    }
}

TEST(Decode, OnAMissingGpuSaysSo) {
    if (cuda_device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
    ApiCase api;
    DecodeArgs args = api.args();
    for (TensorView* view : {&args.q, &args.k_cache, &args.block_table, &args.cache_seqlens, &args.out, &args.lse}) {
        view->device = {DeviceType::kCuda, 0};
    }
    const Status status = decode(args);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find("device: "), std::string::npos) << status.message();
    EXPECT_TRUE(api.outputs_untouched());
}

TEST(Decode, NamesTheKernelThatDoesNotFit) {
    ApiCase api;
    DecodeArgs args = api.args();
    args.out.shape[3] = 128;
    const Status status = decode(args);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_EQ(status.message(),
              "cpu_decode_dense: (d_qk, d_v): got (320, 128), wanted (576, 512), (512, 512), (320, 256)");
    EXPECT_TRUE(api.outputs_untouched());
}

}  // namespace
}  // namespace flashmla::test
