// What looks odd and is legal: empty batches and pools, meaningless strides, broadcast inputs, any scale.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "unit/api/api_case.hpp"

namespace flashmla::test {
namespace {

DecodeArgs empty_args(std::int64_t b, std::int64_t num_pages, std::int64_t max_pages) {
    DecodeArgs args;
    args.q = contiguous_view(nullptr, DType::kBFloat16, {b, 1, 16, 576});
    args.k_cache = contiguous_view(nullptr, DType::kBFloat16, {num_pages, 64, 1, 576});
    args.block_table = contiguous_view(nullptr, DType::kInt32, {b, max_pages});
    args.cache_seqlens = contiguous_view(nullptr, DType::kInt32, {b});
    args.out = contiguous_view(nullptr, DType::kBFloat16, {b, 1, 16, 512});
    args.lse = contiguous_view(nullptr, DType::kFloat32, {b, 16, 1});
    return args;
}

TEST(LegalArguments, AnEmptyBatchNeedsNoMemory) {
    DecodeArgs args = empty_args(0, 0, 1);
    EXPECT_TRUE(decode(args).ok()) << decode(args).message();
    for (TensorView* view : {&args.q, &args.out}) view->stride = {0, -7, 1 << 20, 9};  // of no element
    EXPECT_TRUE(decode(args).ok()) << decode(args).message();
}

TEST(LegalArguments, AnEmptyPoolAndAnEmptyTableServeEmptyRequests) {
    for (const std::int64_t max_pages : {0, 1}) {
        std::vector<std::uint16_t> q(2 * 16 * 576), out(2 * 16 * 512, 0x7fa5);
        std::vector<std::int32_t> lengths(2, 0), table(2, 12345);
        std::vector<float> lse(2 * 16, -1);
        DecodeArgs args = empty_args(2, 0, max_pages);
        args.q.data = q.data();
        args.cache_seqlens.data = lengths.data();
        args.block_table.data = table.data();
        args.out.data = out.data();
        args.lse.data = lse.data();
        const Status status = decode(args);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(out, std::vector<std::uint16_t>(out.size(), 0));
        EXPECT_EQ(lse, std::vector<float>(lse.size(), std::numeric_limits<float>::infinity()));
    }
}

TEST(LegalArguments, StridesOfAxesWithOneElementMeanNothing) {
    reference::DecodeSpec spec = small_spec();
    spec.lengths = {70};
    spec.s_q = 1;
    ApiCase api(spec);
    DecodeArgs args = api.args();
    args.q.stride[0] = args.out.stride[0] = -1;
    args.q.stride[1] = args.out.stride[1] = 0;
    args.k_cache.stride[2] = -5;
    args.lse.stride[0] = 0;
    args.lse.stride[2] = 77;
    args.cache_seqlens.stride[0] = 0;
    const Status status = decode(args);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(api.decode_case().structural_fault(), "");
}

TEST(LegalArguments, InputsMayBeBroadcast) {
    reference::DecodeSpec spec = small_spec();
    spec.lengths = {40, 40};
    ApiCase api(spec);
    DecodeArgs args = api.args();
    args.q.stride[0] = 0;
    args.block_table.stride[0] = 0;
    const Status status = decode(args);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto* out = static_cast<const std::uint16_t*>(args.out.data);
    const std::size_t request = static_cast<std::size_t>(args.out.stride[0]);
    EXPECT_EQ(std::memcmp(out, out + request, request * sizeof *out), 0);
}

TEST(LegalArguments, AnyScaleIsHonoured) {
    ApiCase api;
    DecodeArgs args = api.args();
    args.has_softmax_scale = true;
    for (const double scale : {0.0, -1.0, 1e300, std::numeric_limits<double>::infinity(), std::nan("")}) {
        args.softmax_scale = scale;
        const Status status = decode(args);
        EXPECT_TRUE(status.ok()) << scale << ": " << status.message();
    }
}

// A call like the thread's last one is checked by comparison with that one, and takes nothing else from it.
TEST(LegalArguments, ACallLikeTheLastOneUsesItsOwnMemoryAndScale) {
    reference::DecodeSpec other = small_spec();
    other.seed += 1;
    ApiCase first, second(other);
    DecodeArgs args = second.args();
    args.has_softmax_scale = true;
    args.softmax_scale = 0.01;
    std::thread([&] { EXPECT_TRUE(decode(args).ok()); }).join();  // a thread without a last call
    const std::vector<std::uint16_t> wanted = second.decode_case().out();
    second.decode_case().reset_outputs();
    ASSERT_TRUE(decode(first.args()).ok());
    const std::vector<std::uint16_t> of_first = first.decode_case().out();
    ASSERT_TRUE(decode(args).ok());
    EXPECT_EQ(second.decode_case().out(), wanted);
    EXPECT_EQ(first.decode_case().out(), of_first);
    EXPECT_NE(wanted, of_first);
}

TEST(LegalArguments, TableEntriesPastTheLengthAreNotLookedAt) {
    ApiCase api;
    const DecodeArgs args = api.args();
    auto* row = static_cast<std::int32_t*>(args.block_table.data) + 2 * args.block_table.stride[0];
    for (std::int64_t page = 5; page < args.block_table.shape[1]; ++page) row[page] = page % 2 ? -1 : 2147480000;
    const Status status = decode(args);
    EXPECT_TRUE(status.ok()) << status.message();
}

TEST(LegalArguments, ShapeIsWhatTheTensorsSay) {
    const ApiCase api;
    const Result<DecodeShape> shape = decode_shape(api.args());
    ASSERT_TRUE(shape.ok());
    const std::int64_t max_pages = api.args().block_table.shape[1];
    EXPECT_EQ(shape.value(), (DecodeShape{.b = 3,
                                          .s_q = 2,
                                          .h_q = 3,
                                          .h_kv = 1,
                                          .d_qk = 320,
                                          .d_v = 256,
                                          .page_size = 16,
                                          .max_pages = max_pages,
                                          .dtype = DType::kBFloat16,
                                          .causal = false}));
}

}  // namespace
}  // namespace flashmla::test
