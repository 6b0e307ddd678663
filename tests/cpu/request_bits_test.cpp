// Over fp8 caches and index lists too, a request's bits depend on the request alone.
#include <gtest/gtest.h>

#include <cstring>

#include "cpu/paths.hpp"
#include "reference/decode_case.hpp"

namespace flashmla::cpu_tests {
namespace {

using reference::DecodeCase;
using reference::DecodeSpec;

// Request i of a call as a call of its own; what all requests share stays.
DecodeArgs request_of(DecodeArgs args, std::int64_t i) {
    for (TensorView* view :
         {&args.q, &args.block_table, &args.cache_seqlens, &args.indices, &args.topk_length, &args.extra_indices,
          &args.extra_topk_length, &args.descale_q, &args.descale_k, &args.out, &args.lse}) {
        if (view->rank == 0 || view->shape[0] == 1) continue;
        view->data = static_cast<std::byte*>(view->data) +
                     i * view->stride[0] * static_cast<std::int64_t>(size_bytes(view->dtype));
        view->shape[0] = 1;
    }
    return args;
}

class RequestBits : public testing::TestWithParam<CpuPath> {
protected:
    static void expect_same(const DecodeSpec& spec) {
        DecodeCase together(spec);
        const DecodeArgs args = together.args();
        ASSERT_TRUE(run(GetParam(), args, 1).ok());
        for (const int threads : {2, 5}) {
            DecodeCase again(spec);
            ASSERT_TRUE(run(GetParam(), again.args(), threads).ok());
            EXPECT_EQ(again.out(), together.out()) << threads << " threads";
        }
        DecodeCase alone(spec);
        for (std::int64_t i = 0; i < args.q.shape[0]; ++i) {
            const Status status = run(GetParam(), request_of(alone.args(), i), 2);
            ASSERT_TRUE(status.ok()) << status.message();
        }
        EXPECT_EQ(alone.out(), together.out()) << describe(spec);
        EXPECT_EQ(std::memcmp(alone.lse().data(), together.lse().data(), together.lse().size() * sizeof(float)), 0);
    }
};

TEST_P(RequestBits, OfIndexListsInTwoCaches) {
    DecodeSpec spec;
    for (int i = 0; i < 37; ++i) spec.lengths.push_back(i % 5 == 0 ? 0 : 9 * i);
    spec.format = CacheFormat::kFp8_656;
    spec.h_q = 9;
    spec.topk = 128;
    spec.extra_topk = 30;
    spec.list_lengths = reference::ListLengths::kPerRequest;
    spec.attn_sink = true;
    expect_same(spec);
}

TEST_P(RequestBits, OfLongLists) {
    DecodeSpec spec;
    spec.lengths = {900, 10, 3000};
    spec.h_q = 5;
    spec.s_q = 2;
    spec.topk = 6000;
    expect_same(spec);
}

TEST_P(RequestBits, OfFp8CachesWithTheirDescales) {
    DecodeSpec spec;
    spec.lengths = {4500, 0, 65, 2100, 130};
    spec.format = CacheFormat::kFp8Flat;
    spec.fp8_queries = true;
    spec.descales = 2;
    spec.h_q = 20;
    spec.s_q = 2;
    spec.causal = true;
    expect_same(spec);
}

INSTANTIATE_TEST_SUITE_P(Paths, RequestBits, testing::ValuesIn(cpu_paths()),
                         [](const testing::TestParamInfo<CpuPath>& info) { return info.param.name; });

}  // namespace
}  // namespace flashmla::cpu_tests
