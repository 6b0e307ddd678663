// FLASHMLA_LOG=1 prints one line a call, and nothing else is ever printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "flashmla/flashmla.hpp"

namespace flashmla::test {
namespace {

// The variable is read at the first call, so it must be set before any.
const bool kTraceIsOn = setenv("FLASHMLA_LOG", "1", 1) == 0;

TEST(Trace, OneLineForACallThatReachesAKernel) {
    ASSERT_TRUE(kTraceIsOn);
    DecodeArgs args;
    args.q = contiguous_view(nullptr, DType::kFloat16, {0, 2, 16, 576});
    args.k_cache = contiguous_view(nullptr, DType::kFloat16, {0, 64, 1, 576});
    args.block_table = contiguous_view(nullptr, DType::kInt32, {0, 3});
    args.cache_seqlens = contiguous_view(nullptr, DType::kInt32, {0});
    args.out = contiguous_view(nullptr, DType::kFloat16, {0, 2, 16, 512});
    args.lse = contiguous_view(nullptr, DType::kFloat32, {0, 16, 2});

    testing::internal::CaptureStderr();
    ASSERT_TRUE(decode(args).ok());
    const std::string line = testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    for (const char* part : {"flashmla: decode", "kernel=cpu_decode_dense", "b=0", "s_q=2", "h_q=16", "dtype=float16",
                             "max_pages=3", "status=ok"}) {
        EXPECT_NE(line.find(part), std::string::npos) << "'" << part << "' in: " << line;
    }

    args.q.rank = 1;
    testing::internal::CaptureStderr();
    EXPECT_FALSE(decode(args).ok());
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace flashmla::test
