// Decode through C: the same bits as through C++, and errors in words.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "unit/capi/c_call.hpp"

namespace flashmla::test {
namespace {

size_t workspace_bytes(const flashmla_plan* plan) {
    size_t bytes = 0;
    EXPECT_EQ(flashmla_plan_workspace_bytes(plan, &bytes), FLASHMLA_OK) << flashmla_last_error();
    return bytes;
}

TEST(CDecode, GivesTheBitsOfTheCppCall) {
    CDecodeCall call;
    ApiCase cpp;
    ASSERT_TRUE(decode(cpp.args()).ok());
    for (const bool in_one_call : {true, false}) {
        call.api.decode_case().reset_outputs();
        if (in_one_call) {
            ASSERT_EQ(flashmla_decode(&call.args, nullptr, nullptr), FLASHMLA_OK) << flashmla_last_error();
        } else {
            PlanHandle handle;
            call.make_plan(handle);
            const Workspace workspace(workspace_bytes(handle.plan));
            ASSERT_EQ(
                flashmla_run_decode(handle.plan, &call.args, workspace.data(), workspace_bytes(handle.plan), nullptr),
                FLASHMLA_OK)
                << flashmla_last_error();
        }
        EXPECT_EQ(call.api.decode_case().structural_fault(), "");
        EXPECT_EQ(call.api.decode_case().out(), cpp.decode_case().out());
        EXPECT_EQ(std::memcmp(call.api.decode_case().lse().data(), cpp.decode_case().lse().data(),
                              cpp.decode_case().lse().size() * sizeof(float)),
                  0);
    }
}

TEST(CDecode, ShapeGoesThereAndBack) {
    const CDecodeCall call;
    const flashmla_decode_shape shape = call.shape();
    const DecodeShape cpp = decode_shape(call.api.args()).value();
    EXPECT_EQ(shape.dtype, FLASHMLA_BFLOAT16);
    EXPECT_EQ(shape.format, FLASHMLA_CACHE_BFLOAT16);
    const std::vector<std::int64_t> c_fields = {shape.b,    shape.s_q,       shape.h_q,       shape.h_kv,
                                                shape.d_qk, shape.d_v,       shape.page_size, shape.max_pages,
                                                shape.topk, shape.extra_topk};
    const std::vector<std::int64_t> cpp_fields = {cpp.b,   cpp.s_q,       cpp.h_q,       cpp.h_kv, cpp.d_qk,
                                                  cpp.d_v, cpp.page_size, cpp.max_pages, cpp.topk, cpp.extra_topk};
    EXPECT_EQ(c_fields, cpp_fields);
}

TEST(CDecode, ExactWorkspaceIsTakenAndOneByteLessIsNot) {
    CDecodeCall call;
    PlanHandle handle;
    call.make_plan(handle);
    const size_t bytes = workspace_bytes(handle.plan);
    ASSERT_GT(bytes, 0u);
    const Workspace workspace(bytes);
    EXPECT_TRUE(refused(flashmla_run_decode(handle.plan, &call.args, workspace.data(), bytes - 1, nullptr),
                        FLASHMLA_INVALID_ARGUMENT, "workspace_bytes: got "));
    EXPECT_TRUE(refused(flashmla_run_decode(handle.plan, &call.args, nullptr, bytes, nullptr),
                        FLASHMLA_INVALID_ARGUMENT, "workspace: got a null pointer"));
    EXPECT_TRUE(refused(flashmla_run_decode(handle.plan, &call.args, workspace.data() + 1, bytes, nullptr),
                        FLASHMLA_INVALID_ARGUMENT, "workspace: got an address"));
    EXPECT_TRUE(call.api.outputs_untouched());
    EXPECT_EQ(flashmla_run_decode(handle.plan, &call.args, workspace.data(), bytes, nullptr), FLASHMLA_OK);
}

TEST(CDecode, BadArgumentsAreNamed) {
    using Spoil = void (*)(CDecodeCall&);
    const struct {
        const char* part;
        Spoil spoil;
    } cases[] = {
        {"args.struct_size: got 0, wanted sizeof(flashmla_decode_args) = ",
         [](CDecodeCall& c) { c.args.struct_size = 0; }},
        {"args.struct_size: got ", [](CDecodeCall& c) { c.args.struct_size += 8; }},
        {"args.struct_size: got ", [](CDecodeCall& c) { c.args.struct_size = 0xffffffffu; }},
        {"args.reserved: got 1, wanted 0", [](CDecodeCall& c) { c.args.reserved = 1; }},
        {"causal: got 2, wanted 0 or 1", [](CDecodeCall& c) { c.args.causal = 2; }},
        {"has_softmax_scale: got -1, wanted 0 or 1", [](CDecodeCall& c) { c.args.has_softmax_scale = -1; }},
        {"q: got rank 0", [](CDecodeCall& c) { c.args.q = nullptr; }},
        {"q.struct_size: got 159", [](CDecodeCall& c) { c.q.struct_size = 159; }},
        {"q.dtype: got 0, wanted 1 (bfloat16), 2 (float16)", [](CDecodeCall& c) { c.q.dtype = 0; }},
        {"q.device_type: got 7, wanted 0 (cpu), 1 (cuda)", [](CDecodeCall& c) { c.q.device_type = 7; }},
        {"q.reserved: got 5, wanted 0", [](CDecodeCall& c) { c.q.reserved = 5; }},
        {"k_cache: got rank 8", [](CDecodeCall& c) { c.k_cache.rank = 8; }},
        {"k_cache: got rank 2147483647", [](CDecodeCall& c) { c.k_cache.rank = 2147483647; }},
        {"out: got a null pointer", [](CDecodeCall& c) { c.out.data = nullptr; }},
        {"lse: got dtype bfloat16", [](CDecodeCall& c) { c.lse.dtype = FLASHMLA_BFLOAT16; }},
    };
    for (const auto& bad : cases) {
        CDecodeCall call;
        bad.spoil(call);
        flashmla_decode_shape shape;
        FLASHMLA_INIT(&shape);
        EXPECT_TRUE(refused(flashmla_decode(&call.args, nullptr, nullptr), FLASHMLA_INVALID_ARGUMENT, bad.part));
        EXPECT_TRUE(refused(flashmla_decode_shape_of(&call.args, &shape), FLASHMLA_INVALID_ARGUMENT, bad.part));
        EXPECT_TRUE(call.api.outputs_untouched());
    }
}

TEST(CDecode, NullPointersAreNamed) {
    const CDecodeCall call;
    const flashmla_decode_shape shape = call.shape();
    PlanHandle handle;
    const auto refused_null = [](flashmla_status status, const char* argument) {
        return refused(status, FLASHMLA_INVALID_ARGUMENT, std::string(argument) + ": got a null pointer");
    };
    EXPECT_TRUE(refused_null(flashmla_decode(nullptr, nullptr, nullptr), "args"));
    EXPECT_TRUE(refused_null(flashmla_decode_shape_of(&call.args, nullptr), "shape"));
    EXPECT_TRUE(refused_null(flashmla_plan_decode(nullptr, &call.device, nullptr, &handle.plan), "shape"));
    EXPECT_TRUE(refused_null(flashmla_plan_decode(&shape, nullptr, nullptr, &handle.plan), "device"));
    EXPECT_TRUE(refused_null(flashmla_plan_decode(&shape, &call.device, nullptr, nullptr), "plan"));
    EXPECT_TRUE(refused_null(flashmla_run_decode(nullptr, &call.args, nullptr, 0, nullptr), "plan"));
    EXPECT_EQ(handle.plan, nullptr);
}

// One plan, several threads, a workspace each.
TEST(CDecode, ThreadsShareAPlan) {
    CDecodeCall expected;
    PlanHandle handle;
    expected.make_plan(handle);
    const size_t bytes = workspace_bytes(handle.plan);
    ASSERT_EQ(flashmla_decode(&expected.args, nullptr, nullptr), FLASHMLA_OK);
    constexpr int kThreads = 4;
    std::vector<CDecodeCall> calls(kThreads);
    std::vector<int> failures(kThreads, 0);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
            const flashmla_decode_args args = calls[i].c_args();
            const Workspace workspace(bytes);
            for (int repeat = 0; repeat < 20; ++repeat) {
                failures[i] += flashmla_run_decode(handle.plan, &args, workspace.data(), bytes, nullptr) != FLASHMLA_OK;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (int i = 0; i < kThreads; ++i) {
        EXPECT_EQ(failures[i], 0);
        EXPECT_EQ(calls[i].api.decode_case().out(), expected.api.decode_case().out());
    }
}

}  // namespace
}  // namespace flashmla::test
