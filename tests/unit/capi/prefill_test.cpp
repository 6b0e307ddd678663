// Dense prefill and its backward through C: the bits of the C++ calls, plans of the right operation only.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "unit/capi/c_call.hpp"

namespace flashmla::test {
namespace {

constexpr int64_t kTokens = 5, kHeads = 4, kHeadsKv = 2, kDimQk = 192, kDimV = 128, kRequests = 2;

std::vector<uint16_t> bf16_data(int64_t count) {
    std::vector<uint16_t> values(static_cast<size_t>(count));
    // Between 0.5 and 1, signs mixed.
    for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<uint16_t>(0x3f00 + i % 127 + (i % 3 == 0 ? 0x8000 : 0));
    return values;
}

// Memory, and the same call in both languages.
struct CPrefillCall {
    std::vector<uint16_t> q = bf16_data(kTokens * kHeads * kDimQk), k = bf16_data(kTokens * kHeadsKv * kDimQk),
                          v = bf16_data(kTokens * kHeadsKv * kDimV), dout = bf16_data(kTokens * kHeads * kDimV);
    std::vector<uint16_t> out = std::vector<uint16_t>(dout.size()), dq = std::vector<uint16_t>(q.size()),
                          dk = std::vector<uint16_t>(k.size()), dv = std::vector<uint16_t>(v.size());
    std::vector<float> lse = std::vector<float>(kTokens * kHeads);
    std::vector<int32_t> ends = {0, 2, kTokens};
    DensePrefillBackwardArgs cpp;
    flashmla_tensor views[12];
    flashmla_dense_prefill_args args;
    flashmla_dense_prefill_backward_args backward;

    CPrefillCall() {
        cpp.forward.q = contiguous_view(q.data(), DType::kBFloat16, {kTokens, kHeads, kDimQk});
        cpp.forward.k = contiguous_view(k.data(), DType::kBFloat16, {kTokens, kHeadsKv, kDimQk});
        cpp.forward.v = contiguous_view(v.data(), DType::kBFloat16, {kTokens, kHeadsKv, kDimV});
        cpp.forward.cu_seqlens_q = cpp.forward.cu_seqlens_kv =
            contiguous_view(ends.data(), DType::kInt32, {kRequests + 1});
        cpp.forward.out = contiguous_view(out.data(), DType::kBFloat16, {kTokens, kHeads, kDimV});
        cpp.forward.lse = contiguous_view(lse.data(), DType::kFloat32, {kTokens, kHeads});
        cpp.forward.max_seqlen_q = cpp.forward.max_seqlen_kv = kTokens;
        cpp.forward.causal = true;
        cpp.dout = contiguous_view(dout.data(), DType::kBFloat16, {kTokens, kHeads, kDimV});
        cpp.dq = contiguous_view(dq.data(), DType::kBFloat16, {kTokens, kHeads, kDimQk});
        cpp.dk = contiguous_view(dk.data(), DType::kBFloat16, {kTokens, kHeadsKv, kDimQk});
        cpp.dv = contiguous_view(dv.data(), DType::kBFloat16, {kTokens, kHeadsKv, kDimV});
        FLASHMLA_INIT(&args);
        FLASHMLA_INIT(&backward);
        args.causal = 1;
        args.max_seqlen_q = args.max_seqlen_kv = kTokens;
        backward.forward = &args;
        const struct {
            const flashmla_tensor*& field;
            const TensorView& view;
        } tensors[] = {
            {args.q, cpp.forward.q},
            {args.k, cpp.forward.k},
            {args.v, cpp.forward.v},
            {args.cu_seqlens_q, cpp.forward.cu_seqlens_q},
            {args.cu_seqlens_kv, cpp.forward.cu_seqlens_kv},
            {args.out, cpp.forward.out},
            {args.lse, cpp.forward.lse},
            {backward.dout, cpp.dout},
            {backward.dq, cpp.dq},
            {backward.dk, cpp.dk},
            {backward.dv, cpp.dv},
        };
        flashmla_tensor* next = views;
        for (const auto& tensor : tensors) {
            *next = c_tensor(tensor.view);
            tensor.field = next++;
        }
    }
};

flashmla_prefill_shape shape_of(const CPrefillCall& call) {
    flashmla_prefill_shape shape;
    FLASHMLA_INIT(&shape);
    EXPECT_EQ(flashmla_dense_prefill_shape_of(&call.args, &shape), FLASHMLA_OK) << flashmla_last_error();
    return shape;
}

TEST(CPrefill, ForwardGivesTheBitsOfTheCppCall) {
    CPrefillCall cpp, c, planned;
    ASSERT_TRUE(dense_prefill(cpp.cpp.forward).ok());
    ASSERT_EQ(flashmla_dense_prefill(&c.args, nullptr, nullptr), FLASHMLA_OK) << flashmla_last_error();
    EXPECT_EQ(c.out, cpp.out);
    EXPECT_EQ(c.lse, cpp.lse);

    const flashmla_prefill_shape shape = shape_of(planned);
    const flashmla_device_info device = CDecodeCall::this_cpu();
    PlanHandle handle;
    ASSERT_EQ(flashmla_plan_prefill(&shape, &device, nullptr, &handle.plan), FLASHMLA_OK) << flashmla_last_error();
    flashmla_plan_info info;
    FLASHMLA_INIT(&info);
    ASSERT_EQ(flashmla_query_plan(handle.plan, &info), FLASHMLA_OK);
    EXPECT_EQ(info.operation, FLASHMLA_DENSE_PREFILL);
    const Workspace workspace(info.workspace_bytes);
    if (info.workspace_bytes > 0) {
        EXPECT_TRUE(refused(
            flashmla_run_dense_prefill(handle.plan, &planned.args, workspace.data(), info.workspace_bytes - 1, nullptr),
            FLASHMLA_INVALID_ARGUMENT, "workspace_bytes: got "));
    }
    ASSERT_EQ(flashmla_run_dense_prefill(handle.plan, &planned.args, workspace.data(), info.workspace_bytes, nullptr),
              FLASHMLA_OK)
        << flashmla_last_error();
    EXPECT_EQ(planned.out, cpp.out);
}

TEST(CPrefill, BackwardGivesTheBitsOfTheCppCall) {
    CPrefillCall cpp, c;
    ASSERT_TRUE(dense_prefill(cpp.cpp.forward).ok());
    ASSERT_TRUE(dense_prefill_backward(cpp.cpp).ok());
    ASSERT_EQ(flashmla_dense_prefill(&c.args, nullptr, nullptr), FLASHMLA_OK) << flashmla_last_error();
    ASSERT_EQ(flashmla_dense_prefill_backward(&c.backward, nullptr, nullptr), FLASHMLA_OK) << flashmla_last_error();
    EXPECT_EQ(c.dq, cpp.dq);
    EXPECT_EQ(c.dk, cpp.dk);
    EXPECT_EQ(c.dv, cpp.dv);
}

TEST(CPrefill, APlanServesItsOwnOperationOnly) {
    CPrefillCall call;
    flashmla_prefill_shape shape = shape_of(call);
    const flashmla_device_info device = CDecodeCall::this_cpu();
    PlanHandle forward, backward, decode;
    ASSERT_EQ(flashmla_plan_prefill(&shape, &device, nullptr, &forward.plan), FLASHMLA_OK) << flashmla_last_error();
    shape.operation = FLASHMLA_DENSE_PREFILL_BACKWARD;
    ASSERT_EQ(flashmla_plan_prefill(&shape, &device, nullptr, &backward.plan), FLASHMLA_OK) << flashmla_last_error();
    const CDecodeCall other;
    other.make_plan(decode);
    const Workspace workspace(1 << 20);
    EXPECT_TRUE(refused(flashmla_run_dense_prefill(decode.plan, &call.args, workspace.data(), 1 << 20, nullptr),
                        FLASHMLA_INVALID_ARGUMENT, "plan: made for decode, wanted one of flashmla_plan_prefill"));
    EXPECT_TRUE(refused(flashmla_run_decode(forward.plan, &other.args, workspace.data(), 1 << 20, nullptr),
                        FLASHMLA_INVALID_ARGUMENT, "plan: made for dense_prefill, wanted one of flashmla_plan_decode"));
    EXPECT_TRUE(refused(flashmla_run_dense_prefill(backward.plan, &call.args, workspace.data(), 1 << 20, nullptr),
                        FLASHMLA_INVALID_ARGUMENT, "plan: "));
    EXPECT_TRUE(
        refused(flashmla_run_dense_prefill_backward(forward.plan, &call.backward, workspace.data(), 1 << 20, nullptr),
                FLASHMLA_INVALID_ARGUMENT, "plan: "));
    EXPECT_EQ(call.out, std::vector<uint16_t>(call.out.size()));
    shape.operation = FLASHMLA_DECODE;
    PlanHandle none;
    EXPECT_TRUE(
        refused(flashmla_plan_prefill(&shape, &device, nullptr, &none.plan), FLASHMLA_INVALID_ARGUMENT, "operation"));
}

TEST(CPrefill, RefusalsNameTheArgument) {
    CPrefillCall call;
    call.backward.forward = nullptr;
    EXPECT_TRUE(refused(flashmla_dense_prefill_backward(&call.backward, nullptr, nullptr), FLASHMLA_INVALID_ARGUMENT,
                        "forward: got a null pointer"));
    call.backward.forward = &call.args;
    call.args.struct_size = 3;
    EXPECT_TRUE(refused(flashmla_dense_prefill_backward(&call.backward, nullptr, nullptr), FLASHMLA_INVALID_ARGUMENT,
                        "forward.struct_size: got 3"));
    EXPECT_TRUE(refused(flashmla_dense_prefill(&call.args, nullptr, nullptr), FLASHMLA_INVALID_ARGUMENT,
                        "args.struct_size: got 3"));
    call.args.struct_size = sizeof call.args;
    call.args.reserved = 1;
    EXPECT_TRUE(refused(flashmla_dense_prefill_backward(&call.backward, nullptr, nullptr), FLASHMLA_INVALID_ARGUMENT,
                        "forward.reserved: got 1"));
    EXPECT_TRUE(refused(flashmla_dense_prefill(&call.args, nullptr, nullptr), FLASHMLA_INVALID_ARGUMENT,
                        "args.reserved: got 1"));
    call.args.reserved = 0;
    flashmla_tensor ends = *call.args.cu_seqlens_q;
    call.args.cu_seqlens_q = &ends;
    ends.shape[0] = INT64_MIN;
    EXPECT_TRUE(refused(flashmla_dense_prefill(&call.args, nullptr, nullptr), FLASHMLA_INVALID_ARGUMENT,
                        "cu_seqlens_q: got shape (-9223372036854775808,)"));
    call.args.k = nullptr;
    EXPECT_TRUE(
        refused(flashmla_dense_prefill(&call.args, nullptr, nullptr), FLASHMLA_INVALID_ARGUMENT, "k: got rank 0"));
}

TEST(CAbsorb, ProjectsThereAndBack) {
    // W = [[1, 2, 3], [4, 5, 6]]: head_dim 2, kv_lora_rank 3.
    float x[] = {1, 10}, weight[] = {1, 2, 3, 4, 5, 6}, latent[3] = {}, back[2] = {};
    const int64_t x_shape[] = {1, 1, 2}, weight_shape[] = {1, 2, 3}, latent_shape[] = {1, 1, 3};
    const flashmla_tensor x_view = flashmla_contiguous(x, FLASHMLA_FLOAT32, 3, x_shape);
    const flashmla_tensor weight_view = flashmla_contiguous(weight, FLASHMLA_FLOAT32, 3, weight_shape);
    const flashmla_tensor latent_view = flashmla_contiguous(latent, FLASHMLA_FLOAT32, 3, latent_shape);
    const flashmla_tensor back_view = flashmla_contiguous(back, FLASHMLA_FLOAT32, 3, x_shape);
    flashmla_absorb_args args;
    FLASHMLA_INIT(&args);
    args.x = &x_view;
    args.weight = &weight_view;
    args.out = &latent_view;
    ASSERT_EQ(flashmla_absorb_query(&args, nullptr), FLASHMLA_OK) << flashmla_last_error();
    EXPECT_EQ(std::vector<float>(latent, latent + 3), (std::vector<float>{41, 52, 63}));
    args.x = &latent_view;
    args.out = &back_view;
    ASSERT_EQ(flashmla_project_output(&args, nullptr), FLASHMLA_OK) << flashmla_last_error();
    EXPECT_EQ(std::vector<float>(back, back + 2), (std::vector<float>{334, 802}));
    args.reserved = 1;
    EXPECT_TRUE(refused(flashmla_project_output(&args, nullptr), FLASHMLA_INVALID_ARGUMENT, "args.reserved: got 1"));
}

TEST(CCapability, YesOrTheReason) {
    flashmla_capability_query query;
    FLASHMLA_INIT(&query);
    query.operation = FLASHMLA_DECODE;
    query.dtype = FLASHMLA_FLOAT16;  // and so is the cache
    query.d_qk = 576;
    query.d_v = 512;
    query.page_size = 64;
    const flashmla_device_info cpu = CDecodeCall::this_cpu();
    EXPECT_EQ(flashmla_check_capability(&query, &cpu), FLASHMLA_OK) << flashmla_last_error();
    query.d_v = 128;
    EXPECT_TRUE(refused(flashmla_check_capability(&query, &cpu), FLASHMLA_UNSUPPORTED, "(d_qk, d_v): got (576, 128)"));
    query.operation = 0;
    EXPECT_TRUE(refused(flashmla_check_capability(&query, &cpu), FLASHMLA_INVALID_ARGUMENT, "query.operation: got 0"));
    query.operation = FLASHMLA_DECODE;
    query.sparse = 2;
    EXPECT_TRUE(refused(flashmla_check_capability(&query, &cpu), FLASHMLA_INVALID_ARGUMENT, "query.sparse: got 2"));
    EXPECT_TRUE(refused(flashmla_check_capability(&query, nullptr), FLASHMLA_INVALID_ARGUMENT, "query.sparse: got 2"));
    EXPECT_TRUE(
        refused(flashmla_check_capability(nullptr, &cpu), FLASHMLA_INVALID_ARGUMENT, "query: got a null pointer"));
}

}  // namespace
}  // namespace flashmla::test
