// The arguments of sparse and fp8 decode: each mistake gives one error that names the argument; nothing given is
// ignored.
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "flashmla/flashmla.hpp"

namespace flashmla::test {
namespace {

// A legal call over an fp8_656 cache with everything optional given; outputs hold a pattern.
class SparseCall {
public:
    SparseCall() {
        args.q = contiguous_view(q_.data(), DType::kBFloat16, {2, 3, 4, 576});
        args.k_cache = contiguous_view(cache_.data(), DType::kUInt8, {2, 4, 1, 656});
        args.indices = contiguous_view(ids_.data(), DType::kInt32, {2, 3, 5});
        args.topk_length = contiguous_view(counts_.data(), DType::kInt32, {2});
        args.extra_k_cache = contiguous_view(cache_.data(), DType::kUInt8, {4, 2, 1, 656});
        args.extra_indices = contiguous_view(ids_.data(), DType::kInt32, {2, 3, 4});
        args.extra_topk_length = contiguous_view(counts_.data(), DType::kInt32, {2, 3});
        args.attn_sink = contiguous_view(sink_.data(), DType::kFloat32, {4});
        args.out = contiguous_view(out_.data(), DType::kBFloat16, {2, 3, 4, 512});
        args.lse = contiguous_view(lse_.data(), DType::kFloat32, {2, 4, 3});
    }
    bool untouched() const {
        return out_ == std::vector<std::uint16_t>(out_.size(), 7) && lse_ == std::vector<float>(lse_.size(), 7);
    }
    // The parts of the call that make it sparse, replaced by a table over an fp8_flat cache of e4m3 queries.
    void make_dense_flat() {
        args.indices = args.topk_length = args.extra_k_cache = args.extra_indices = args.extra_topk_length = {};
        args.q = contiguous_view(q_.data(), DType::kFloat8E4m3, {2, 3, 4, 576});
        args.k_cache = contiguous_view(cache_.data(), DType::kFloat8E4m3, {2, 4, 1, 576});
        args.block_table = contiguous_view(ids_.data(), DType::kInt32, {2, 1});
        args.cache_seqlens = contiguous_view(counts_.data(), DType::kInt32, {2});
        args.descale_q = contiguous_view(sink_.data(), DType::kFloat32, {2});
        args.descale_k = contiguous_view(sink_.data(), DType::kFloat32, {1});
    }

    DecodeArgs args;

private:
    std::vector<std::uint16_t> q_ = std::vector<std::uint16_t>(2 * 3 * 4 * 576);
    std::vector<std::uint8_t> cache_ = std::vector<std::uint8_t>(8 * 656);
    std::vector<std::int32_t> ids_ = std::vector<std::int32_t>(2 * 3 * 5);
    std::vector<std::int32_t> counts_ = std::vector<std::int32_t>(6);
    std::vector<float> sink_ = std::vector<float>(4);
    std::vector<std::uint16_t> out_ = std::vector<std::uint16_t>(2 * 3 * 4 * 512, 7);
    std::vector<float> lse_ = std::vector<float>(2 * 4 * 3, 7);
};

struct Mistake {
    const char* name;
    std::function<void(SparseCall&)> make;
    std::vector<const char*> message;
};

void PrintTo(const Mistake& mistake, std::ostream* stream) { *stream << mistake.name; }

const Mistake kMistakes[] = {
    {"indices_rank_2", [](SparseCall& c) { c.args.indices.rank = 2; }, {"indices: got rank 2", "(b, s_q, topk)"}},
    {"indices_rank_4", [](SparseCall& c) { c.args.indices.rank = 4; }, {"indices: got rank 4"}},
    {"causal", [](SparseCall& c) { c.args.causal = true; }, {"causal: got true together with indices"}},
    {"table_too", [](SparseCall& c) { c.args.block_table = c.args.indices; }, {"block_table: got one together"}},
    {"lengths_too", [](SparseCall& c) { c.args.cache_seqlens = c.args.topk_length; }, {"cache_seqlens: got one"}},
    {"topk_zero", [](SparseCall& c) { c.args.indices.shape[2] = 0; }, {"indices: got shape (2, 3, 0)", "at least one"}},
    {"extra_topk_zero", [](SparseCall& c) { c.args.extra_indices.shape[2] = 0; }, {"extra_indices: got shape"}},
    {"indices_s_q", [](SparseCall& c) { c.args.indices.shape[1] = 2; }, {"indices: got shape (2, 2, 5)", "s_q = 3"}},
    {"indices_dtype", [](SparseCall& c) { c.args.indices.dtype = DType::kInt64; }, {"indices: got dtype int64"}},
    {"topk_length_rank", [](SparseCall& c) { c.args.topk_length.rank = 3; }, {"topk_length: got rank 3", "(b,)"}},
    {"topk_length_b", [](SparseCall& c) { c.args.topk_length.shape[0] = 3; }, {"topk_length: got shape (3,)"}},
    {"extra_without_list", [](SparseCall& c) { c.args.extra_indices = {}; }, {"extra_indices: got rank 0"}},
    {"list_without_extra", [](SparseCall& c) { c.args.extra_k_cache = {}; }, {"extra_indices: got one without"}},
    {"extra_lengths_alone",
     [](SparseCall& c) { c.args.extra_k_cache = c.args.extra_indices = {}; },
     {"extra_topk_length: got one without extra_k_cache"}},
    {"extra_record", [](SparseCall& c) { c.args.extra_k_cache.shape[3] = 576; }, {"extra_k_cache: got shape", "656"}},
    {"extra_dtype",
     [](SparseCall& c) { c.args.extra_k_cache.dtype = DType::kFloat8E4m3; },
     {"extra_k_cache: got dtype float8_e4m3fn", "k_cache's dtype"}},
    {"sink_heads", [](SparseCall& c) { c.args.attn_sink.shape[0] = 3; }, {"attn_sink: got shape (3,)", "h_q = 4"}},
    {"sink_dtype", [](SparseCall& c) { c.args.attn_sink.dtype = DType::kInt32; }, {"attn_sink: got dtype int32"}},
    {"record_of_no_format",
     [](SparseCall& c) { c.args.k_cache.shape[3] = 528; },
     {"k_cache: got last axis 528", "656"}},
    {"record_of_other_d_qk", [](SparseCall& c) { c.args.k_cache.shape[3] = 584; }, {"k_cache: got last axis 584"}},
    {"fp8_queries_of_656",
     [](SparseCall& c) { c.args.q.dtype = DType::kFloat8E4m3; },
     {"format: got a cache of fp8_656", "fp8_flat for float8_e4m3fn queries"}},
    {"descale_of_656",
     [](SparseCall& c) { c.args.descale_k = c.args.attn_sink; },
     {"descale_k: got one with q of bfloat16 and a cache of fp8_656"}},
    {"dense_with_topk_length",
     [](SparseCall& c) {
         c.make_dense_flat();
         c.args.topk_length = c.args.cache_seqlens;
     },
     {"topk_length: got one without indices"}},
    {"descale_size",
     [](SparseCall& c) {
         c.make_dense_flat();
         c.args.descale_q.shape[0] = 3;
     },
     {"descale_q: got shape (3,)", "b = 2"}},
    {"out_of_fp8_queries",
     [](SparseCall& c) {
         c.make_dense_flat();
         c.args.out.dtype = DType::kFloat16;
     },
     {"out: got dtype float16", "bfloat16, for a float8_e4m3fn q"}},
};

class SparseMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(SparseMistakes, GiveOneErrorAndTouchNothing) {
    SparseCall call;
    GetParam().make(call);
    const Status status = decode(call.args);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    for (const char* part : GetParam().message) {
        EXPECT_NE(status.message().find(part), std::string::npos) << "'" << part << "' in: " << status.message();
    }
    EXPECT_TRUE(call.untouched());
}

INSTANTIATE_TEST_SUITE_P(Api, SparseMistakes, testing::ValuesIn(kMistakes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(SparseArguments, ShapeIsWhatTheTensorsSay) {
    SparseCall call;
    const Result<DecodeShape> sparse = decode_shape(call.args);
    ASSERT_TRUE(sparse.ok()) << sparse.status().message();
    EXPECT_EQ(sparse.value(), (DecodeShape{.b = 2,
                                           .s_q = 3,
                                           .h_q = 4,
                                           .page_size = 4,
                                           .format = CacheFormat::kFp8_656,
                                           .topk = 5,
                                           .extra_topk = 4,
                                           .extra_page_size = 2,
                                           .attn_sink = true}));
    call.make_dense_flat();
    const Result<DecodeShape> dense = decode_shape(call.args);
    ASSERT_TRUE(dense.ok()) << dense.status().message();
    EXPECT_EQ(dense.value(), (DecodeShape{.b = 2,
                                          .s_q = 3,
                                          .h_q = 4,
                                          .page_size = 4,
                                          .max_pages = 1,
                                          .dtype = DType::kFloat8E4m3,
                                          .format = CacheFormat::kFp8Flat,
                                          .attn_sink = true}));
}

TEST(SparseArguments, AGpuSaysWhatItHas) {
    SparseCall call;
    const DecodeShape shape = decode_shape(call.args).value();
    const Status status = plan_decode(shape, named_device("h200").value()).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find("sm90_decode_dense: indices: got some"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace flashmla::test
