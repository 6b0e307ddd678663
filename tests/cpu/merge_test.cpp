// Merging partial results against the oracle: layouts, dtypes, infinities, parts that may not be read.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cpu/paths.hpp"
#include "flashmla/merge.hpp"
#include "reference/merge.hpp"
#include "reference/random.hpp"
#include "support/guarded_tensor.hpp"

namespace flashmla::cpu_tests {
namespace {

using testing_support::GuardedTensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr DType kFloatTypes[] = {DType::kBFloat16, DType::kFloat16, DType::kFloat32};

struct MergeSpec {
    std::size_t parts = 2;
    std::vector<std::int64_t> axes = {2, 3, 4, 40};  // (b, s_q, h_q, d_v), or without b
    double lse_std = 3;
    bool packed = false;
};

class MergeCase {
public:
    MergeCase(const MergeSpec& spec, std::uint64_t seed) : axes_(spec.axes), random_(seed) {
        const bool batched = axes_.size() == 4;
        const std::int64_t gap = spec.packed ? 0 : 3;
        std::vector<std::int64_t> lse_axes =
            batched ? std::vector{axes_[0], axes_[2], axes_[1]} : std::vector{axes_[0], axes_[1]};
        const auto make_out = [&] {
            // Heads before tokens every other time.
            const std::vector<int> order = batched ? std::vector{0, 2, 1, 3} : std::vector{1, 0, 2};
            return GuardedTensor(random_.pick(kFloatTypes), axes_, gap,
                                 random_.chance(0.5) ? order : std::vector<int>{});
        };
        for (std::size_t i = 0; i < spec.parts; ++i) {
            outs_.push_back(make_out());
            lses_.emplace_back(DType::kFloat32, lse_axes, gap);
            for (std::int64_t e = 0; e < outs_[i].elements(); ++e) outs_[i].set(e, 1 + random_.normal());
            for (std::int64_t e = 0; e < lses_[i].elements(); ++e) lses_[i].set(e, spec.lse_std * random_.normal());
        }
        out_ = make_out();
        lse_ = GuardedTensor(DType::kFloat32, lse_axes, gap);
        for (const GuardedTensor& tensor : outs_) out_views_.push_back(tensor.view());
        for (const GuardedTensor& tensor : lses_) lse_views_.push_back(tensor.view());
    }

    MergeArgs args() const { return {.outs = out_views_, .lses = lse_views_, .out = out_.view(), .lse = lse_.view()}; }
    reference::Random& random() { return random_; }
    GuardedTensor& part_out(std::size_t i) { return outs_[i]; }
    GuardedTensor& part_lse(std::size_t i) { return lses_[i]; }
    GuardedTensor& out() { return out_; }
    GuardedTensor& lse() { return lse_; }

    // Part i of a row becomes "no key": its LSE an infinity, its values NaN.
    void empty_part(std::size_t i, std::int64_t request, std::int64_t token, std::int64_t head, double lse) {
        const std::int64_t d_v = axes_.back();
        const std::int64_t s_q = axes_[axes_.size() - 3];
        const std::int64_t h_q = axes_[axes_.size() - 2];
        lses_[i].set(axes_.size() == 4 ? (request * h_q + head) * s_q + token : token * h_q + head, lse);
        for (std::int64_t d = 0; d < d_v; ++d) outs_[i].set(((request * s_q + token) * h_q + head) * d_v + d, NAN);
    }

    void expect_oracle() {
        EXPECT_EQ(out_.output_fault("out"), "");
        EXPECT_EQ(lse_.output_fault("lse"), "");
        const bool batched = axes_.size() == 4;
        const std::int64_t b = batched ? axes_[0] : 1;
        const std::int64_t s_q = axes_[axes_.size() - 3];
        const std::int64_t h_q = axes_[axes_.size() - 2];
        const std::int64_t d_v = axes_.back();
        for (std::int64_t row = 0; row < b * s_q * h_q; ++row) {
            const std::int64_t i = row / (s_q * h_q);
            const std::int64_t t = row / h_q % s_q;
            const std::int64_t h = row % h_q;
            const reference::MergedRow want = reference::merge_row(args(), i, t, h);
            const double lse = lse_.get(batched ? (i * h_q + h) * s_q + t : t * h_q + h);
            if (std::isinf(want.lse)) {
                ASSERT_EQ(lse, kInfinity);
            } else {
                ASSERT_LE(std::abs(lse - want.lse), want.lse_bound) << i << " " << t << " " << h;
            }
            for (std::int64_t d = 0; d < d_v; ++d) {
                const double error = std::abs(out_.get(row * d_v + d) - want.out[static_cast<std::size_t>(d)]);
                ASSERT_LE(error, want.out_bound[static_cast<std::size_t>(d)]) << i << " " << t << " " << h << " " << d;
            }
        }
    }

private:
    std::vector<std::int64_t> axes_;
    reference::Random random_;
    std::vector<GuardedTensor> outs_, lses_;
    GuardedTensor out_, lse_;
    std::vector<TensorView> out_views_, lse_views_;
};

class MergePaths : public testing::TestWithParam<CpuPath> {
protected:
    static Status merge_on_path(const MergeArgs& args) {
        const ForcedIsa forced(GetParam().name.c_str());
        return merge(args);
    }
};

TEST_P(MergePaths, FollowsTheOracle) {
    const MergeSpec specs[] = {
        {},
        {.parts = 1},
        {.parts = 7, .axes = {5, 3, 512}},
        {.parts = 3, .axes = {2, 1, 128, 128}, .packed = true},
        {.parts = 2, .axes = {3, 2, 1}},
        {.parts = 4, .axes = {1, 2, 2, 2500}},
        {.parts = 70, .axes = {4, 2, 33}},
        {.parts = 2, .axes = {2, 3, 4, 17}, .lse_std = 50},
        {.parts = 3, .axes = {2, 3, 4, 17}, .lse_std = 1000},
    };
    for (const MergeSpec& spec : specs) {
        for (std::uint64_t seed = 1; seed <= 4; ++seed) {
            SCOPED_TRACE(std::to_string(spec.parts) + " parts, width " + std::to_string(spec.axes.back()) + ", seed " +
                         std::to_string(seed));
            MergeCase c(spec, seed);
            const Status status = merge_on_path(c.args());
            ASSERT_TRUE(status.ok()) << status.message();
            c.expect_oracle();
        }
    }
}

TEST_P(MergePaths, EmptyPartsHaveNoWeightAndAreNotRead) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        MergeCase c({.parts = 3}, seed);
        for (std::int64_t row = 0; row < 2 * 3 * 4; ++row) {
            for (std::size_t part = 0; part < 3; ++part) {
                if (!c.random().chance(row % 4 == 0 ? 1 : 0.4)) continue;
                c.empty_part(part, row / 12, row / 4 % 3, row % 4, c.random().chance(0.5) ? kInfinity : -kInfinity);
            }
        }
        ASSERT_TRUE(merge_on_path(c.args()).ok());
        c.expect_oracle();
        EXPECT_EQ(c.lse().get(0), kInfinity);
        EXPECT_EQ(c.out().get(0), 0);
    }
}

TEST_P(MergePaths, SumsTwoAndEightMergeToFourFifths) {
    MergeCase c({.axes = {1, 1, 8}}, 1);
    c.part_lse(0).set(0, std::log(2.0));
    c.part_lse(1).set(0, std::log(8.0));
    for (int d = 0; d < 8; ++d) {
        c.part_out(0).set(d, 0);
        c.part_out(1).set(d, 1);
    }
    ASSERT_TRUE(merge_on_path(c.args()).ok());
    EXPECT_NEAR(c.out().get(3), 0.8, 2e-3);
    EXPECT_NEAR(c.lse().get(0), std::log(10.0), 1e-6);
}

TEST_P(MergePaths, ANanStaysInItsRow) {
    MergeCase c({.parts = 3}, 5);
    c.part_lse(1).set(0, NAN);  // request 0, head 0, token 0
    c.part_out(2).set(40 * 13 + 7, NAN);
    ASSERT_TRUE(merge_on_path(c.args()).ok());
    for (std::int64_t e = 0; e < c.out().elements(); ++e) {
        EXPECT_EQ(std::isnan(c.out().get(e)), e < 40 || e == 40 * 13 + 7) << e;
    }
    for (std::int64_t e = 0; e < c.lse().elements(); ++e) EXPECT_EQ(std::isnan(c.lse().get(e)), e == 0) << e;
}

TEST_P(MergePaths, TheResultMayReplaceAPart) {
    MergeCase c({.parts = 3, .axes = {2, 2, 3, 1500}}, 9);
    ASSERT_TRUE(merge_on_path(c.args()).ok());
    MergeCase in_place({.parts = 3, .axes = {2, 2, 3, 1500}}, 9);
    MergeArgs args = in_place.args();
    args.out = in_place.part_out(1).view();
    args.lse = in_place.part_lse(1).view();
    ASSERT_TRUE(merge_on_path(args).ok());
    for (std::int64_t e = 0; e < c.lse().elements(); ++e) EXPECT_EQ(in_place.part_lse(1).get(e), c.lse().get(e));
    for (std::int64_t e = 0; e < c.out().elements(); ++e) {
        EXPECT_NEAR(in_place.part_out(1).get(e), c.out().get(e), 0.02 * std::abs(c.out().get(e)) + 1e-3);
    }
}

TEST_P(MergePaths, NoRowsAndNoColumns) {
    for (const std::vector<std::int64_t>& axes : {std::vector<std::int64_t>{0, 3, 4, 40}, {3, 0, 16}, {3, 2, 0}}) {
        MergeCase c({.axes = axes}, 1);
        EXPECT_TRUE(merge_on_path(c.args()).ok());
        c.expect_oracle();
    }
}

INSTANTIATE_TEST_SUITE_P(Native, MergePaths, testing::ValuesIn(native_paths()),
                         [](const testing::TestParamInfo<CpuPath>& info) { return info.param.name; });

}  // namespace
}  // namespace flashmla::cpu_tests
