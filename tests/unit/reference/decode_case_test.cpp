// The test data itself: whether it is as hard as it claims, and whether the checks see what they must see.
#include "reference/decode_case.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "core/float_formats.hpp"
#include "reference/compare.hpp"

namespace flashmla::reference {
namespace {

DecodeSpec small_spec() {
    DecodeSpec spec;
    spec.name = "small";
    spec.lengths = {130, 0, 64};
    spec.h_q = 3;
    spec.s_q = 2;
    spec.causal = true;
    return spec;
}

// Stores the oracle's own answer as a perfect kernel would.
void answer_exactly(DecodeCase& c) {
    const DecodeArgs args = c.args();
    for (const Row& row : sample_rows(args, 0, 0)) {
        const RowResult exact = decode_row(args, row);
        for (std::size_t d = 0; d < exact.out.size(); ++d) {
            stored_out(args, row)[d] = core::encode_16bit(args.out.dtype, static_cast<float>(exact.out[d]));
        }
        stored_lse(args, row) = static_cast<float>(exact.lse);
    }
}

double deviation(const std::vector<Score>& scores) {
    double sum = 0, squares = 0;
    for (const Score& s : scores) sum += s.logit;
    const double mean = sum / static_cast<double>(scores.size());
    for (const Score& s : scores) squares += (s.logit - mean) * (s.logit - mean);
    return std::sqrt(squares / static_cast<double>(scores.size()));
}

TEST(DecodeCase, LogitsHaveTheWantedDeviation) {
    for (const double wanted : {0.01, 1.0, 8.0, 50.0}) {
        for (const KeyOrder order : {KeyOrder::kRandom, KeyOrder::kRising}) {
            for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
                DecodeSpec spec = small_spec();
                spec.lengths = {4000};
                spec.logit_std = wanted;
                spec.keys = order;
                spec.dtype = dtype;
                const DecodeCase c(spec);
                const double got = deviation(decode_row(c.args(), {0, 1, 2}).scores);
                EXPECT_GT(got, 0.85 * wanted) << describe(spec);
                EXPECT_LT(got, 1.15 * wanted) << describe(spec);
            }
        }
    }
}

TEST(DecodeCase, EveryTileOfRisingKeysRaisesTheMaximumOfEveryRow) {
    for (const double wanted : {0.01, 1.0, 50.0}) {
        for (const double scale : {1 / 24.0, -0.05}) {
            DecodeSpec spec = small_spec();
            spec.lengths = {1000, 33};
            spec.logit_std = wanted;
            spec.keys = KeyOrder::kRising;
            spec.softmax_scale = scale;
            spec.has_softmax_scale = true;
            const DecodeCase c(spec);
            for (const Row& row : sample_rows(c.args(), 0, 0)) {
                const auto scores = decode_row(c.args(), row).scores;
                double max = -std::numeric_limits<double>::infinity();
                for (std::size_t tile = 0; tile + 16 <= scores.size(); tile += 16) {
                    double tile_max = -std::numeric_limits<double>::infinity();
                    for (std::size_t j = tile; j < tile + 16; ++j) tile_max = std::max(tile_max, scores[j].logit);
                    ASSERT_GT(tile_max, max) << describe(spec) << ", " << describe(row) << ", key " << tile;
                    max = tile_max;
                }
            }
        }
    }
}

TEST(DecodeCase, DominantLastKeyTakesTheWeight) {
    DecodeSpec spec = small_spec();
    spec.keys = KeyOrder::kDominantLast;
    for (const double deviation : {0.01, 8.0, 50.0}) {
        spec.logit_std = deviation;
        const DecodeCase c(spec);
        const RowResult row = decode_row(c.args(), {0, 1, 0});
        EXPECT_EQ(row.scores.size(), 130u);
        EXPECT_GT(std::exp(row.scores.back().logit - row.lse), 0.99);
    }
}

TEST(DecodeCase, SameSeedSameBytesOtherSeedOtherBytes) {
    DecodeSpec spec = small_spec();
    const DecodeCase a(spec), b(spec);
    EXPECT_EQ(a.q(), b.q());
    EXPECT_EQ(a.pool(), b.pool());
    EXPECT_EQ(a.table(), b.table());
    spec.seed = 2;
    EXPECT_NE(DecodeCase(spec).pool(), a.pool());
}

TEST(DecodeCase, EveryByteWithoutALiveTokenIsPoison) {
    for (const int layers : {1, 8}) {
        DecodeSpec spec = small_spec();
        spec.pool_layers = layers;
        const DecodeCase c(spec);
        const auto live =
            std::count_if(c.pool().begin(), c.pool().end(), [](std::uint16_t code) { return code != 0x7f81; });
        EXPECT_EQ(live, (130 + 64) * 576) << layers;
        EXPECT_EQ(c.args().k_cache.stride[0], layers * 64 * 576);
    }
}

TEST(DecodeCase, TableEntriesPastTheLengthAreWild) {
    const DecodeCase c(small_spec());
    const DecodeArgs args = c.args();
    const auto* table = static_cast<const std::int32_t*>(args.block_table.data);
    const std::int64_t width = args.block_table.shape[1];
    ASSERT_EQ(width, 3 + 2);
    std::set<std::int32_t> owned;
    for (int i = 0; i < 3; ++i) {
        const std::int64_t pages = (small_spec().lengths[i] + 63) / 64;
        for (std::int64_t p = 0; p < width; ++p) {
            const std::int32_t id = table[i * width + p];
            const bool inside = id >= 0 && id < args.k_cache.shape[0];
            EXPECT_EQ(inside, p < pages) << i << ", " << p;
            if (inside) {
                EXPECT_TRUE(owned.insert(id).second) << "page " << id << " has two owners";
            }
        }
    }
}

TEST(DecodeCase, SharedPagesAreShared) {
    DecodeSpec spec = small_spec();
    spec.lengths = {300, 200, 50};
    spec.pages = PageOrder::kShared;
    const DecodeArgs args = DecodeCase(spec).args();
    const DecodeCase c(spec);
    const auto* table = c.table().data();
    const std::int64_t width = args.block_table.shape[1];
    EXPECT_EQ(table[width], table[0]);
    EXPECT_EQ(table[width + 1], table[1]);
    EXPECT_NE(table[width + 2], table[2]);
    EXPECT_NE(table[2 * width], table[0]);
    EXPECT_TRUE(std::isfinite(decode_row(c.args(), {1, 1, 0}).lse));
}

TEST(DecodeCase, NoPagesAtAll) {
    DecodeSpec spec = small_spec();
    spec.lengths.assign(16, 0);
    spec.spare_pages = spec.spare_columns = 0;
    DecodeCase c(spec);
    EXPECT_EQ(c.args().k_cache.shape[0], 0);
    EXPECT_EQ(c.args().block_table.shape[1], 0);
    answer_exactly(c);
    EXPECT_EQ(compare_case(c, fp32_model()).message, "");
    DecodeSpec none = small_spec();
    none.lengths.clear();
    EXPECT_EQ(compare_case(DecodeCase(none), fp32_model()).message, "");
}

TEST(DecodeCase, RandomSpecsAreLegalAndRepeatable) {
    for (std::uint64_t seed = 0; seed < 2000; ++seed) {
        const DecodeSpec spec = random_spec(seed, 5000, 64);
        ASSERT_EQ(describe(spec), describe(random_spec(seed, 5000, 64)));
        ASSERT_GE(spec.h_q, 1);
        ASSERT_EQ(spec.h_q % spec.h_kv, 0) << describe(spec);
        ASSERT_GE(spec.s_q, 1);
        for (const int length : spec.lengths) ASSERT_TRUE(length >= 0 && length <= 5000);
    }
}

class Checks : public testing::Test {
protected:
    void SetUp() override {
        DecodeSpec spec = small_spec();
        spec.strided_out = true;
        c_.emplace(spec);
        answer_exactly(*c_);
        args_ = c_->args();
    }
    std::string message() const { return compare_case(*c_, fp32_model()).message; }

    std::optional<DecodeCase> c_;
    DecodeArgs args_;
};

TEST_F(Checks, AcceptTheExactAnswer) {
    const Comparison comparison = compare_case(*c_, fp32_model());
    EXPECT_EQ(comparison.message, "");
    EXPECT_EQ(comparison.rows, 3 * 2 * 3);
    EXPECT_LT(comparison.relative_error, 0x1p-8);
}

TEST_F(Checks, SeeAnElementThatWasNotWritten) {
    DecodeCase fresh(c_->spec());
    EXPECT_NE(compare_case(fresh, fp32_model()).message.find("not written"), std::string::npos);
}

TEST_F(Checks, SeeNanInOneElement) {
    stored_out(args_, {2, 1, 2})[511] = 0x7fc0;
    EXPECT_NE(message().find("out is nan in column 511 at request 2, token 1, head 2"), std::string::npos) << message();
}

TEST_F(Checks, SeeAnEmptyRowThatIsNotEmpty) {
    stored_lse(args_, {1, 0, 0}) = -std::numeric_limits<float>::infinity();
    EXPECT_NE(message().find("instead of +inf"), std::string::npos) << message();
    stored_lse(args_, {1, 0, 0}) = std::numeric_limits<float>::infinity();
    stored_out(args_, {1, 1, 2})[3] = 1;
    EXPECT_NE(message().find("instead of 0"), std::string::npos) << message();
}

TEST_F(Checks, SeeAWriteOutsideTheTensor) {
    std::uint16_t& gap = stored_out(args_, {0, 0, 0})[512];
    gap = 0;
    EXPECT_NE(message().find("a guard of out"), std::string::npos) << message();
    SetUp();
    c_->lse().front() = 0;
    EXPECT_NE(message().find("a guard of lse"), std::string::npos) << message();
}

TEST_F(Checks, SeeAnInputThatChanged) {
    auto* q = const_cast<std::uint16_t*>(c_->q().data());
    q[200] ^= 1;
    EXPECT_NE(message().find("input"), std::string::npos) << message();
}

TEST_F(Checks, SeeOneWrongValueAndNameIt) {
    std::uint16_t& code = stored_out(args_, {0, 1, 1})[77];
    code = core::float_to_bf16(core::bf16_to_float(code) + 0.01f);
    EXPECT_NE(message().find("request 0, token 1, head 1 (130 keys): out[77]"), std::string::npos) << message();
    EXPECT_NE(message().find("seed 1"), std::string::npos);
}

TEST_F(Checks, SeeAWrongLse) {
    stored_lse(args_, {2, 0, 0}) += 1e-3f;
    EXPECT_NE(message().find("request 2, token 0, head 0"), std::string::npos) << message();
}

}  // namespace
}  // namespace flashmla::reference
