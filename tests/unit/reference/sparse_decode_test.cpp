// The oracle of index lists, sinks, extra caches and fp8 records against closed forms and bytes placed by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/float_formats.hpp"
#include "reference/decode.hpp"

namespace flashmla::reference {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// d_qk = 2, d_v = 1: token (v, x) of a bf16 pool has value v and, under the query (0, 1), logit x. Pages of 2.
struct Tiny {
    std::vector<std::uint16_t> q{0, core::float_to_bf16(1)}, pool, extra;
    std::vector<std::int32_t> ids, extra_ids, counts, extra_counts;
    std::vector<float> sink;
    std::vector<std::uint16_t> out{0};
    std::vector<float> lse{0};

    static void add(std::vector<std::uint16_t>& pool, float value, float x) {
        pool.push_back(core::float_to_bf16(value));
        pool.push_back(core::float_to_bf16(x));
    }
    DecodeArgs args() {
        DecodeArgs args;
        args.q = contiguous_view(q.data(), DType::kBFloat16, {1, 1, 1, 2});
        const auto cache = [](std::vector<std::uint16_t>& tokens) {
            return contiguous_view(tokens.data(), DType::kBFloat16,
                                   {static_cast<std::int64_t>(tokens.size()) / 4, 2, 1, 2});
        };
        const auto list = [](std::vector<std::int32_t>& values) {
            return contiguous_view(values.data(), DType::kInt32, {1, 1, static_cast<std::int64_t>(values.size())});
        };
        args.k_cache = cache(pool);
        args.indices = list(ids);
        if (!counts.empty()) args.topk_length = contiguous_view(counts.data(), DType::kInt32, {1});
        if (!extra.empty()) {
            args.extra_k_cache = cache(extra);
            args.extra_indices = list(extra_ids);
            if (!extra_counts.empty())
                args.extra_topk_length = contiguous_view(extra_counts.data(), DType::kInt32, {1, 1});
        }
        if (!sink.empty()) args.attn_sink = contiguous_view(sink.data(), DType::kFloat32, {1});
        args.out = contiguous_view(out.data(), DType::kBFloat16, {1, 1, 1, 1});
        args.lse = contiguous_view(lse.data(), DType::kFloat32, {1, 1, 1});
        args.softmax_scale = 1;
        args.has_softmax_scale = true;
        return args;
    }
    RowResult row() { return decode_row(args(), {}); }
};

Tiny four_tokens() {
    Tiny tiny;
    for (int i = 0; i < 4; ++i) Tiny::add(tiny.pool, static_cast<float>(i), 0);
    return tiny;
}

TEST(SparseOracle, EveryEntryCountsAlsoTheSameOneTwice) {
    Tiny tiny = four_tokens();
    tiny.ids = {3, 3, 0};
    EXPECT_NEAR(tiny.row().out[0], 2, 1e-15);
    EXPECT_NEAR(tiny.row().lse, std::log(3.0), 1e-15);
}

TEST(SparseOracle, IdsOutsideThePoolNameNothing) {
    Tiny tiny = four_tokens();
    tiny.ids = {-1, 2, 4, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()};
    EXPECT_EQ(tiny.row().scores.size(), 1u);
    EXPECT_EQ(tiny.row().out[0], 2);
    tiny.ids = {-1, 4};
    tiny.sink = {1};
    EXPECT_EQ(tiny.row().out[0], 0);
    EXPECT_EQ(tiny.row().lse, kInf);
}

TEST(SparseOracle, EntriesAtOrPastTheLengthDoNotExist) {
    Tiny tiny = four_tokens();
    tiny.ids = {1, 3, 2};
    for (const auto& [length, mean] : {std::pair{1, 1.0}, {2, 2.0}, {3, 2.0}, {99, 2.0}, {0, 0.0}, {-5, 0.0}}) {
        tiny.counts = {length};
        EXPECT_NEAR(tiny.row().out[0], mean, 1e-15) << length;
    }
}

TEST(SparseOracle, TheExtraCacheHasItsOwnTokensAndLength) {
    Tiny tiny = four_tokens();
    Tiny::add(tiny.extra, 10, 0);
    Tiny::add(tiny.extra, 30, 0);
    tiny.ids = {2, -1};
    tiny.extra_ids = {1, 0, 3, 1};
    tiny.extra_counts = {3};  // token 3 is none of its two
    EXPECT_NEAR(tiny.row().out[0], (2.0 + 30 + 10) / 3, 1e-14);
    EXPECT_NEAR(tiny.row().lse, std::log(3.0), 1e-15);
}

TEST(SparseOracle, TheSinkScalesTheResultAndLeavesTheLse) {
    Tiny tiny = four_tokens();
    tiny.ids = {1, 3};
    const double lse = std::log(2.0);
    for (const float sink : {-3.0f, 0.0f, 0.6931472f, 1e30f, -1e30f}) {
        tiny.sink = {sink};
        const double factor = std::exp(lse) / (std::exp(lse) + std::exp(double{sink}));
        EXPECT_NEAR(tiny.row().out[0], 2 * factor, 1e-7) << sink;
        EXPECT_NEAR(tiny.row().lse, lse, 1e-15);
    }
    tiny.sink = {kInf};
    EXPECT_EQ(tiny.row().out[0], 0);
    tiny.sink = {-kInf};
    EXPECT_EQ(tiny.row().out[0], 2);
}

// A call with one key that the row sees, so that out is the key's value and the logit the product.
struct OneKey {
    std::vector<std::uint8_t> cache;
    std::vector<std::uint8_t> q8;
    std::vector<std::uint16_t> q, out = std::vector<std::uint16_t>(512);
    std::vector<std::int32_t> ids;
    std::vector<float> descale_q, descale_k, lse = std::vector<float>(1);

    DecodeArgs args(std::int64_t d_qk, std::int64_t page, std::int64_t record, std::int64_t page_bytes) {
        DecodeArgs args;
        args.q = q8.empty() ? contiguous_view(q.data(), DType::kBFloat16, {1, 1, 1, d_qk})
                            : contiguous_view(q8.data(), DType::kFloat8E4m3, {1, 1, 1, d_qk});
        const auto pages = static_cast<std::int64_t>(cache.size()) / page_bytes;
        args.k_cache = contiguous_view(cache.data(), DType::kUInt8, {pages, page, 1, record});
        args.k_cache.stride[0] = page_bytes;
        args.indices = contiguous_view(ids.data(), DType::kInt32, {1, 1, 1});
        if (!descale_q.empty()) args.descale_q = contiguous_view(descale_q.data(), DType::kFloat32, {1});
        if (!descale_k.empty()) args.descale_k = contiguous_view(descale_k.data(), DType::kFloat32, {1});
        args.out = contiguous_view(out.data(), DType::kBFloat16, {1, 1, 1, 512});
        args.lse = contiguous_view(lse.data(), DType::kFloat32, {1, 1, 1});
        args.softmax_scale = 1;
        args.has_softmax_scale = true;
        return args;
    }
};

template <class T>
void put(std::vector<std::uint8_t>& bytes, std::size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
}

constexpr std::uint8_t kOne = 0x38, kThree = 0x44;  // 1.0 and 3.0 in e4m3

TEST(RecordOracle, FlatCodesAreWorthTheirDescales) {
    OneKey key;
    key.cache.assign(576 * 2, 0xff);  // NaN
    std::fill(key.cache.begin() + 576, key.cache.end(), kThree);
    key.q8.assign(576, kOne);
    key.ids = {1};
    key.descale_q = {0.25f};
    key.descale_k = {5};
    const RowResult row = decode_row(key.args(576, 2, 576, 2 * 576), {});
    EXPECT_EQ(row.out[0], 15);
    EXPECT_EQ(row.out[511], 15);
    EXPECT_EQ(row.lse, 576 * 0.25 * 15);
}

TEST(RecordOracle, Fp8656HasAScaleForEvery128Values) {
    OneKey key;
    key.cache.assign(656 * 2, 0xff);
    std::uint8_t* token = key.cache.data() + 656;
    std::fill(token, token + 512, kThree);
    const float scales[] = {1, 1024, 0.0009765625f, 2};
    std::memcpy(token + 512, scales, sizeof scales);
    for (int i = 0; i < 64; ++i) put(key.cache, 656 + 528 + 2 * i, core::float_to_bf16(static_cast<float>(i)));
    key.q.assign(576, 0);
    key.q[512 + 5] = key.q[128] = core::float_to_bf16(1);
    key.ids = {1};
    const RowResult row = decode_row(key.args(576, 2, 656, 2 * 656), {});
    EXPECT_EQ(row.out[0], 3);
    EXPECT_EQ(row.out[127], 3);
    EXPECT_EQ(row.out[128], 3072);
    EXPECT_EQ(row.out[256], 3.0 / 1024);
    EXPECT_EQ(row.out[511], 6);
    EXPECT_EQ(row.lse, 3072 + 5);
}

TEST(RecordOracle, Fp8584KeepsItsScalesAtTheEndOfThePage) {
    OneKey key;
    const std::size_t page_bytes = 1728;  // 3 tokens of 584 bytes, rounded up to a multiple of 576: 1752 -> 2304
    key.cache.assign(2 * 2304, 0xff);
    const std::size_t token = 2304 + 2 * 576;  // the third of the second page
    for (int i = 0; i < 448; ++i) key.cache[token + i] = kThree;
    for (int i = 0; i < 64; ++i) put(key.cache, token + 448 + 2 * i, core::float_to_bf16(static_cast<float>(i)));
    for (int g = 0; g < 7; ++g) key.cache[2304 + page_bytes + 2 * 8 + g] = static_cast<std::uint8_t>(127 + g);
    key.q.assign(512, 0);
    key.q[448 + 9] = key.q[447] = core::float_to_bf16(1);
    key.ids = {5};
    const RowResult row = decode_row(key.args(512, 3, 584, 2304), {});
    EXPECT_EQ(row.out[0], 3);
    EXPECT_EQ(row.out[64], 6);
    EXPECT_EQ(row.out[447], 192);
    EXPECT_EQ(row.out[448 + 9], 9);  // the rotary values are part of the value
    EXPECT_EQ(row.lse, 192 + 9);
}

}  // namespace
}  // namespace flashmla::reference
