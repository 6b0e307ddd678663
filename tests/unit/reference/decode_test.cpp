// The oracle against closed forms: cases small enough to know the answer without it.
#include "reference/decode.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/float_formats.hpp"

namespace flashmla::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A tiny call with d_qk = 2, d_v = 1: key (v, x) has value v; with q = (0, a) its logit is a * x.
class TinyCall {
public:
    struct Key {
        float value;
        float x;
    };

    TinyCall(std::vector<std::int32_t> lengths, std::int64_t s_q, std::int64_t h_q, std::int64_t h_kv,
             std::int64_t page_size)
        : lengths_(std::move(lengths)) {
        const auto b = static_cast<std::int64_t>(lengths_.size());
        constexpr std::int64_t kPagesEach = 4;
        q_.resize(b * s_q * h_q * 2);
        cache_.assign(b * kPagesEach * page_size * h_kv * 2, 0x7fc0);  // NaN until set
        for (std::int64_t page = b * kPagesEach; page > 0; --page)
            table_.push_back(static_cast<std::int32_t>(page - 1));
        out_.resize(b * s_q * h_q);
        lse_.resize(b * s_q * h_q);
        args.q = contiguous_view(q_.data(), DType::kBFloat16, {b, s_q, h_q, 2});
        args.k_cache = contiguous_view(cache_.data(), DType::kBFloat16, {b * kPagesEach, page_size, h_kv, 2});
        args.block_table = contiguous_view(table_.data(), DType::kInt32, {b, kPagesEach});
        args.cache_seqlens = contiguous_view(lengths_.data(), DType::kInt32, {b});
        args.out = contiguous_view(out_.data(), DType::kBFloat16, {b, s_q, h_q, 1});
        args.lse = contiguous_view(lse_.data(), DType::kFloat32, {b, h_q, s_q});
        args.softmax_scale = 1;
        args.has_softmax_scale = true;
    }

    void set_query(const Row& row, float a) {
        std::uint16_t* q = q_.data() + ((row.request * args.q.shape[1] + row.token) * args.q.shape[2] + row.head) * 2;
        q[1] = core::float_to_bf16(a);
    }
    void set_all_queries(float a) {
        for (std::size_t i = 1; i < q_.size(); i += 2) q_[i] = core::float_to_bf16(a);
    }
    void set_key(std::int64_t request, std::int64_t index, Key key, std::int64_t kv_head = 0) {
        auto* row = const_cast<std::uint16_t*>(PagedKeys(args, request, kv_head).row(index));
        row[0] = core::float_to_bf16(key.value);
        row[1] = core::float_to_bf16(key.x);
    }

    DecodeArgs args;

private:
    std::vector<std::int32_t> lengths_, table_;
    std::vector<std::uint16_t> q_, cache_, out_;
    std::vector<float> lse_;
};

TEST(Oracle, OneKeyGivesItsValueAndItsLogit) {
    TinyCall call({1}, 1, 1, 1, 4);
    call.set_all_queries(3);
    call.set_key(0, 0, {5, 2});
    const RowResult row = decode_row(call.args, {});
    EXPECT_EQ(row.out[0], 5);
    EXPECT_EQ(row.lse, 6);
    EXPECT_EQ(row.scores[0].magnitude, 6);
}

TEST(Oracle, EqualLogitsGiveTheMeanAndTheLogOfTheCount) {
    TinyCall call({5}, 1, 1, 1, 2);
    for (int j = 0; j < 5; ++j) call.set_key(0, j, {static_cast<float>(j), 1});
    call.set_all_queries(4);
    const RowResult row = decode_row(call.args, {});
    EXPECT_NEAR(row.out[0], 2, 1e-15);
    EXPECT_NEAR(row.lse, 4 + std::log(5.0), 1e-15);
}

TEST(Oracle, TwoKeysFollowTheLogisticFunction) {
    TinyCall call({2}, 1, 1, 1, 1);
    call.set_all_queries(1);
    call.set_key(0, 0, {0, 0});
    call.set_key(0, 1, {1, 1.5f});
    const RowResult row = decode_row(call.args, {});
    EXPECT_NEAR(row.out[0], 1 / (1 + std::exp(-1.5)), 1e-15);
    EXPECT_NEAR(row.lse, std::log(1 + std::exp(1.5)), 1e-15);
}

TEST(Oracle, HugeLogitsDoNotOverflow) {
    TinyCall call({2}, 1, 1, 1, 1);
    call.set_all_queries(1024);
    call.set_key(0, 0, {1, 1024});
    call.set_key(0, 1, {2, 1025});  // 1024 in bf16
    const RowResult row = decode_row(call.args, {});
    EXPECT_NEAR(row.out[0], 1.5, 1e-15);
    EXPECT_NEAR(row.lse, 1024.0 * 1024 + std::log(2.0), 1e-9);
}

TEST(Oracle, EmptyRowIsZeroAndPlusInfinity) {
    TinyCall call({0, 1}, 1, 1, 1, 4);
    call.set_key(1, 0, {7, 1});
    const RowResult row = decode_row(call.args, {});
    EXPECT_EQ(row.out[0], 0);
    EXPECT_EQ(row.lse, kInf);
    EXPECT_EQ(decode_row(call.args, {1, 0, 0}).out[0], 7);
}

TEST(Oracle, NothingPastTheLengthIsRead) {
    // Everything that set_key has not touched is NaN, in the tail of the page and in other pages.
    TinyCall call({3}, 1, 1, 1, 4);
    for (int j = 0; j < 3; ++j) call.set_key(0, j, {2, 1});
    EXPECT_EQ(decode_row(call.args, {}).out[0], 2);
}

TEST(Oracle, CausalTokensSeeOneKeyMoreEach) {
    TinyCall call({4}, 3, 1, 1, 2);
    call.args.causal = true;
    for (int j = 0; j < 4; ++j) call.set_key(0, j, {static_cast<float>(1 << j), 0});
    EXPECT_NEAR(decode_row(call.args, {0, 0, 0}).out[0], 3 / 2.0, 1e-15);
    EXPECT_NEAR(decode_row(call.args, {0, 1, 0}).out[0], 7 / 3.0, 1e-15);
    EXPECT_NEAR(decode_row(call.args, {0, 2, 0}).out[0], 15 / 4.0, 1e-15);
    EXPECT_NEAR(decode_row(call.args, {0, 0, 0}).lse, std::log(2.0), 1e-15);
}

TEST(Oracle, CausalWithMoreTokensThanKeys) {
    TinyCall call({1}, 4, 1, 1, 2);
    call.args.causal = true;
    call.set_all_queries(2);
    call.set_key(0, 0, {9, 3});
    for (int t = 0; t < 3; ++t) {
        EXPECT_EQ(decode_row(call.args, {0, t, 0}).out[0], 0) << t;
        EXPECT_EQ(decode_row(call.args, {0, t, 0}).lse, kInf) << t;
    }
    EXPECT_EQ(decode_row(call.args, {0, 3, 0}).out[0], 9);
    EXPECT_EQ(decode_row(call.args, {0, 3, 0}).lse, 6);
}

TEST(Oracle, WithoutCausalEveryTokenSeesEveryKey) {
    TinyCall call({1}, 4, 1, 1, 2);
    call.set_key(0, 0, {9, 0});
    for (int t = 0; t < 4; ++t) EXPECT_EQ(decode_row(call.args, {0, t, 0}).out[0], 9) << t;
}

TEST(Oracle, HeadsAreGroupedByConsecutiveBlocks) {
    TinyCall call({1}, 1, 6, 3, 2);
    for (int head = 0; head < 3; ++head) call.set_key(0, 0, {static_cast<float>(head), 0}, head);
    for (int head = 0; head < 6; ++head) EXPECT_EQ(decode_row(call.args, {0, 0, head}).out[0], head / 2) << head;
}

TEST(Oracle, DefaultScaleIsOneOverTheRootOfTheKeyWidth) {
    TinyCall call({1}, 1, 1, 1, 1);
    call.args.has_softmax_scale = false;
    call.set_all_queries(1);
    call.set_key(0, 0, {1, 1});
    EXPECT_NEAR(decode_row(call.args, {}).lse, std::sqrt(0.5), 1e-15);
}

TEST(Oracle, ZeroAndNegativeScalesAreHonoured) {
    TinyCall call({2}, 1, 1, 1, 1);
    call.set_all_queries(1);
    call.set_key(0, 0, {0, 1});
    call.set_key(0, 1, {1, 2});
    call.args.softmax_scale = 0;
    EXPECT_EQ(decode_row(call.args, {}).out[0], 0.5);
    call.args.softmax_scale = -1;
    EXPECT_NEAR(decode_row(call.args, {}).out[0], 1 / (1 + std::exp(1.0)), 1e-15);
}

TEST(Oracle, CumulativeLengths) {
    TinyCall call({1, 1}, 1, 1, 1, 2);
    const std::int32_t cumulative[] = {0, 0, 2};
    call.args.cache_seqlens = {};
    call.args.cu_seqlens_k = contiguous_view(cumulative, DType::kInt32, {3});
    call.set_key(1, 0, {1, 0});
    call.set_key(1, 1, {4, 0});
    EXPECT_EQ(decode_row(call.args, {0, 0, 0}).lse, kInf);
    EXPECT_EQ(decode_row(call.args, {1, 0, 0}).out[0], 2.5);
}

TEST(Oracle, WholeCallPutsRowsInPlace) {
    TinyCall call({1, 2}, 2, 3, 1, 2);
    call.args.causal = true;
    call.set_key(0, 0, {1, 1});
    call.set_key(1, 0, {2, 1});
    call.set_key(1, 1, {3, 1});
    for (int t = 0; t < 2; ++t) {
        for (int h = 0; h < 3; ++h) call.set_query({1, t, h}, static_cast<float>(10 * t + h));
    }
    const DecodeResult all = decode_all(call.args);
    for (int i = 0; i < 2; ++i) {
        for (int t = 0; t < 2; ++t) {
            for (int h = 0; h < 3; ++h) {
                const RowResult row = decode_row(call.args, {i, t, h});
                EXPECT_EQ(all.out[(i * 2 + t) * 3 + h], row.out[0]);
                EXPECT_EQ(all.lse[(i * 3 + h) * 2 + t], row.lse);
            }
        }
    }
    EXPECT_EQ(all.lse[1 * 6 + 2 * 2 + 0], 2);  // request 1, head 2, token 0: one key with logit 2
}

TEST(OracleMerge, SumsTwoAndEightWithOutputsZeroAndOneGiveFourFifths) {
    const Partial parts[] = {{{0}, std::log(2.0)}, {{1}, std::log(8.0)}};
    const Partial merged = merge(parts);
    EXPECT_NEAR(merged.out[0], 0.8, 1e-15);
    EXPECT_NEAR(merged.lse, std::log(10.0), 1e-15);
}

TEST(OracleMerge, EmptyPartsOfEitherSignWeighNothing) {
    const Partial parts[] = {{{kNan}, kInf}, {{3}, -700}, {{kNan}, -kInf}};
    EXPECT_EQ(merge(parts).out[0], 3);
    EXPECT_EQ(merge(parts).lse, -700);
}

TEST(OracleMerge, AllPartsEmptyGiveAnEmptyRow) {
    const Partial parts[] = {{{kNan, kNan}, -kInf}, {{kNan, kNan}, kInf}};
    const Partial merged = merge(parts);
    EXPECT_EQ(merged.out, (std::vector<double>{0, 0}));
    EXPECT_EQ(merged.lse, kInf);
}

TEST(OracleMerge, PartsOfARowMergeToTheRow) {
    TinyCall whole({3}, 1, 1, 1, 4);
    TinyCall tail({2}, 1, 1, 1, 4);
    const TinyCall::Key keys[] = {{1, 0.5f}, {2, -1}, {4, 2}};
    for (TinyCall* call : {&whole, &tail}) call->set_all_queries(1);
    for (int j = 0; j < 3; ++j) whole.set_key(0, j, keys[j]);
    for (int j = 1; j < 3; ++j) tail.set_key(0, j - 1, keys[j]);
    const RowResult last = decode_row(tail.args, {});
    const Partial parts[] = {{{1}, 0.5}, {last.out, last.lse}};
    const RowResult exact = decode_row(whole.args, {});
    EXPECT_NEAR(merge(parts).out[0], exact.out[0], 1e-15);
    EXPECT_NEAR(merge(parts).lse, exact.lse, 1e-15);
}

}  // namespace
}  // namespace flashmla::reference
