// Every kind of bad argument gives one error that names the argument, what it got and what it accepts; nothing is
// written.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "unit/api/api_case.hpp"

namespace flashmla::test {
namespace {

struct BadArgument {
    const char* name;
    std::function<void(DecodeArgs&)> spoil;
    std::vector<const char*> message;  // parts that the message holds
};

void PrintTo(const BadArgument& bad, std::ostream* stream) { *stream << bad.name; }

constexpr std::int64_t kHuge = std::int64_t{1} << 61;

const BadArgument kBadArguments[] = {
    {"q_rank", [](DecodeArgs& a) { a.q.rank = 3; }, {"q: got rank 3", "rank 4", "(b, s_q, h_q, d_qk)"}},
    {"q_rank_negative", [](DecodeArgs& a) { a.q.rank = -1; }, {"q: got rank -1"}},
    {"q_rank_wild", [](DecodeArgs& a) { a.q.rank = 1000; }, {"q: got rank 1000"}},
    {"k_cache_rank", [](DecodeArgs& a) { a.k_cache.rank = 2; }, {"k_cache: got rank 2", "rank 4"}},
    {"block_table_rank", [](DecodeArgs& a) { a.block_table.rank = 1; }, {"block_table: got rank 1", "(b, max_pages)"}},
    {"cache_seqlens_rank", [](DecodeArgs& a) { a.cache_seqlens.rank = 2; }, {"cache_seqlens: got rank 2", "(b,)"}},
    {"out_rank", [](DecodeArgs& a) { a.out.rank = 3; }, {"out: got rank 3"}},
    {"lse_rank", [](DecodeArgs& a) { a.lse.rank = 2; }, {"lse: got rank 2", "(b, h_q, s_q)"}},
    {"no_lengths", [](DecodeArgs& a) { a.cache_seqlens = {}; }, {"cache_seqlens, cu_seqlens_k: got neither"}},
    {"both_lengths",
     [](DecodeArgs& a) { a.cu_seqlens_k = a.cache_seqlens; },
     {"cache_seqlens, cu_seqlens_k: got both"}},

    {"k_cache_width", [](DecodeArgs& a) { a.k_cache.shape[3] = 319; }, {"k_cache: got last axis 319", "d_qk 320"}},
    {"pages_negative", [](DecodeArgs& a) { a.k_cache.shape[0] = -1; }, {"k_cache: got shape (-1,"}},
    {"table_b", [](DecodeArgs& a) { a.block_table.shape[0] = 2; }, {"block_table: got shape (2,", "b = 3"}},
    {"lengths_b", [](DecodeArgs& a) { a.cache_seqlens.shape[0] = 4; }, {"cache_seqlens: got shape (4,)", "(b = 3,)"}},
    {"cu_lengths_b",
     [](DecodeArgs& a) {
         a.cu_seqlens_k = a.cache_seqlens;
         a.cache_seqlens = {};
     },
     {"cu_seqlens_k: got shape (3,)", "b + 1 = 4"}},
    {"out_b", [](DecodeArgs& a) { a.out.shape[0] = 2; }, {"out: got shape (2,", "b = 3"}},
    {"out_s_q", [](DecodeArgs& a) { a.out.shape[1] = 1; }, {"out: got shape (3, 1,", "s_q = 2"}},
    {"out_h_q", [](DecodeArgs& a) { a.out.shape[2] = 4; }, {"out: got shape (3, 2, 4,", "h_q = 3"}},
    {"lse_order",
     [](DecodeArgs& a) { std::swap(a.lse.shape[1], a.lse.shape[2]); },
     {"lse: got shape (3, 2, 3)", "h_q = 3, s_q = 2"}},
    {"d_v_over_d_qk", [](DecodeArgs& a) { a.out.shape[3] = 321; }, {"out", "d_v: got 321", "at most d_qk = 320"}},
    {"d_v_zero", [](DecodeArgs& a) { a.out.shape[3] = 0; }, {"out", "d_v: got 0"}},
    {"s_q_zero", [](DecodeArgs& a) { a.q.shape[1] = 0; }, {"q (3, 0,", "s_q: got 0"}},
    {"b_negative", [](DecodeArgs& a) { a.q.shape[0] = -3; }, {"q (-3,", "b: got -3"}},
    {"b_huge", [](DecodeArgs& a) { a.q.shape[0] = kHuge; }, {"b: got 2305843009213693952"}},
    {"h_q_huge", [](DecodeArgs& a) { a.q.shape[2] = kHuge; }, {"h_q: got 2305843009213693952"}},
    {"h_kv_zero", [](DecodeArgs& a) { a.k_cache.shape[2] = 0; }, {"k_cache", "h_kv: got 0"}},
    {"h_kv_does_not_divide", [](DecodeArgs& a) { a.k_cache.shape[2] = 2; }, {"h_q: got 3", "multiple of h_kv = 2"}},
    {"page_size_zero", [](DecodeArgs& a) { a.k_cache.shape[1] = 0; }, {"k_cache", "page_size: got 0"}},
    {"max_pages_negative", [](DecodeArgs& a) { a.block_table.shape[1] = -1; }, {"max_pages: got -1"}},

    {"q_dtype", [](DecodeArgs& a) { a.q.dtype = DType::kFloat32; }, {"q", "dtype: got float32", "bfloat16 or float16"}},
    {"q_dtype_wild", [](DecodeArgs& a) { a.q.dtype = static_cast<DType>(99); }, {"dtype: got unknown"}},
    {"k_cache_dtype",
     [](DecodeArgs& a) { a.k_cache.dtype = DType::kFloat16; },
     {"k_cache: got dtype float16", "bfloat16, q's dtype"}},
    {"out_dtype", [](DecodeArgs& a) { a.out.dtype = DType::kFloat32; }, {"out: got dtype float32", "bfloat16"}},
    {"table_dtype",
     [](DecodeArgs& a) { a.block_table.dtype = DType::kFloat32; },
     {"block_table: got dtype float32", "int32"}},
    {"lengths_dtype",
     [](DecodeArgs& a) { a.cache_seqlens.dtype = DType::kFloat32; },
     {"cache_seqlens: got dtype float32", "int32"}},
    {"lse_dtype", [](DecodeArgs& a) { a.lse.dtype = DType::kBFloat16; }, {"lse: got dtype bfloat16", "float32"}},

    {"lengths_device",
     [](DecodeArgs& a) {
         a.cache_seqlens.device = {DeviceType::kCuda, 0};
     },
     {"cache_seqlens: got device cuda:0", "cpu, where q is"}},
    {"q_device",
     [](DecodeArgs& a) {
         a.q.device = {DeviceType::kCuda, 1};
     },
     {"k_cache: got device cpu", "cuda:1, where q is"}},
    {"out_device",
     [](DecodeArgs& a) {
         a.out.device = {DeviceType::kCpu, 1};
     },
     {"out: got device cpu:1"}},

    {"q_last_axis", [](DecodeArgs& a) { a.q.stride[3] = 2; }, {"q: got strides", "last axis with stride 1"}},
    {"k_cache_last_axis",
     [](DecodeArgs& a) { a.k_cache.stride[3] = 0; },
     {"k_cache: got strides", "last axis with stride 1"}},
    {"table_last_axis",
     [](DecodeArgs& a) { a.block_table.stride[1] = 3; },
     {"block_table: got strides", "last axis with stride 1"}},
    {"lengths_last_axis", [](DecodeArgs& a) { a.cache_seqlens.stride[0] = 2; }, {"cache_seqlens: got strides (2,)"}},
    {"out_last_axis", [](DecodeArgs& a) { a.out.stride[3] = 2; }, {"out: got strides"}},
    {"q_negative_stride", [](DecodeArgs& a) { a.q.stride[0] = -1; }, {"q: got strides (-1,", "no negative stride"}},
    {"lse_negative_stride", [](DecodeArgs& a) { a.lse.stride[1] = -2; }, {"lse: got strides", "no negative stride"}},
    {"page_stride_overflow",
     [](DecodeArgs& a) { a.k_cache.stride[0] = kHuge; },
     {"k_cache: got shape", "fits 63 bits"}},
    {"token_stride_overflow",
     [](DecodeArgs& a) { a.q.stride[1] = std::numeric_limits<std::int64_t>::max(); },
     {"q: got shape", "fits 63 bits"}},
    {"out_broadcast", [](DecodeArgs& a) { a.out.stride[0] = 0; }, {"out: got shape", "a place of its own"}},
    {"out_rows_overlap", [](DecodeArgs& a) { a.out.stride[2] = 255; }, {"out: got shape", "a place of its own"}},
    {"lse_broadcast", [](DecodeArgs& a) { a.lse.stride[2] = 0; }, {"lse: got shape", "a place of its own"}},

    {"q_null", [](DecodeArgs& a) { a.q.data = nullptr; }, {"q: got a null pointer"}},
    {"k_cache_null", [](DecodeArgs& a) { a.k_cache.data = nullptr; }, {"k_cache: got a null pointer"}},
    {"table_null", [](DecodeArgs& a) { a.block_table.data = nullptr; }, {"block_table: got a null pointer"}},
    {"lengths_null", [](DecodeArgs& a) { a.cache_seqlens.data = nullptr; }, {"cache_seqlens: got a null pointer"}},
    {"out_null", [](DecodeArgs& a) { a.out.data = nullptr; }, {"out: got a null pointer"}},
    {"lse_null", [](DecodeArgs& a) { a.lse.data = nullptr; }, {"lse: got a null pointer"}},
    {"q_odd_address",
     [](DecodeArgs& a) { a.q.data = static_cast<std::byte*>(a.q.data) + 1; },
     {"q: got an address", "multiple of 2"}},
    {"lse_odd_address",
     [](DecodeArgs& a) { a.lse.data = static_cast<std::byte*>(a.lse.data) + 2; },
     {"lse: got an address", "multiple of 4"}},
};

class BadArguments : public testing::TestWithParam<BadArgument> {};

TEST_P(BadArguments, GiveOneErrorAndTouchNothing) {
    ApiCase api;
    const DecodePlan plan = cpu_plan(api.args());
    const Workspace workspace(plan.workspace_bytes);
    DecodeArgs args = api.args();
    GetParam().spoil(args);

    // After a good call: what run_decode remembers of that one must not make it overlook anything.
    ASSERT_TRUE(run_decode(plan, api.args(), workspace.data(), plan.workspace_bytes).ok());
    api.decode_case().reset_outputs();
    const Status status = run_decode(plan, args, workspace.data(), plan.workspace_bytes);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    for (const char* part : GetParam().message) {
        EXPECT_NE(status.message().find(part), std::string::npos) << "'" << part << "' in: " << status.message();
    }
    EXPECT_TRUE(api.outputs_untouched());
    EXPECT_EQ(decode_shape(args).status().message(), status.message());
    EXPECT_EQ(decode(args).message(), status.message());
    EXPECT_TRUE(api.outputs_untouched());
}

INSTANTIATE_TEST_SUITE_P(Api, BadArguments, testing::ValuesIn(kBadArguments),
                         [](const auto& info) { return std::string(info.param.name); });

// Tensor contents, which are read only after the shapes are known to be right.
class BadContents : public testing::Test {
protected:
    void expect_refused(const char* part) {
        const DecodeArgs args = api_.args();
        const DecodePlan plan = cpu_plan(args);
        const Workspace workspace(plan.workspace_bytes);
        const Status status = run_decode(plan, args, workspace.data(), plan.workspace_bytes);
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
        EXPECT_TRUE(api_.outputs_untouched());
    }
    std::int32_t* lengths() { return static_cast<std::int32_t*>(api_.args().cache_seqlens.data); }
    std::int32_t* table_row(int request) {
        const TensorView table = api_.args().block_table;
        return static_cast<std::int32_t*>(table.data) + request * table.stride[0];
    }
    ApiCase api_;
};

TEST_F(BadContents, NegativeLength) {
    lengths()[1] = -1;
    expect_refused("cache_seqlens: got -1 for request 1, wanted 0 to ");
}

TEST_F(BadContents, LengthBeyondTheTable) {
    lengths()[2] = static_cast<std::int32_t>(api_.args().block_table.shape[1] * 16 + 1);
    expect_refused("for request 2, wanted 0 to ");
}

TEST_F(BadContents, NegativePage) {
    table_row(2)[4] = -1;  // holds tokens 64 to 69
    expect_refused("block_table: got page -1 at (2, 4)");
}

TEST_F(BadContents, PageBeyondThePool) {
    table_row(0)[0] = static_cast<std::int32_t>(api_.args().k_cache.shape[0]);
    expect_refused("block_table: got page ");
}

TEST(CumulativeLengths, DecreasingOrWildOnesAreRefused) {
    reference::DecodeSpec spec = small_spec();
    spec.cumulative_lengths = true;
    for (const std::int32_t wild :
         {-1, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()}) {
        ApiCase api(spec);
        const DecodePlan plan = cpu_plan(api.args());
        const Workspace workspace(plan.workspace_bytes);
        static_cast<std::int32_t*>(api.args().cu_seqlens_k.data)[1] = wild;
        const Status status = run_decode(plan, api.args(), workspace.data(), plan.workspace_bytes);
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_NE(status.message().find("cu_seqlens_k: got a difference of "), std::string::npos) << status.message();
        EXPECT_TRUE(api.outputs_untouched());
    }
}

}  // namespace
}  // namespace flashmla::test
