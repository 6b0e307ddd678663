// The projections around absorbed attention against the oracle: widths, strides, dtypes, what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "cpu/paths.hpp"
#include "flashmla/absorb.hpp"
#include "reference/absorb.hpp"
#include "reference/random.hpp"
#include "support/guarded_tensor.hpp"

namespace flashmla::cpu_tests {
namespace {

using reference::Projection;
using testing_support::GuardedTensor;

struct Sizes {
    std::int64_t n = 5, h = 3, head_dim = 128, rank = 512;
};

class AbsorbCase {
public:
    AbsorbCase(const Sizes& sizes, Projection projection, DType dtype, std::uint64_t seed)
        : projection_(projection), random_(seed) {
        const bool absorb = projection == Projection::kAbsorbQuery;
        const std::int64_t depth = absorb ? sizes.head_dim : sizes.rank;
        const std::int64_t columns = absorb ? sizes.rank : sizes.head_dim;
        x_ = GuardedTensor(dtype, {sizes.n, sizes.h, depth}, 5,
                           random_.chance(0.5) ? std::vector{1, 0, 2} : std::vector<int>{});
        weight_ = GuardedTensor(dtype, {sizes.h, sizes.head_dim, sizes.rank}, 2);
        out_ = GuardedTensor(dtype, {sizes.n, sizes.h, columns}, 64);
        for (std::int64_t i = 0; i < x_.elements(); ++i) x_.set(i, 1 + random_.normal());
        for (std::int64_t i = 0; i < weight_.elements(); ++i) weight_.set(i, 0.1 + random_.normal());
    }

    AbsorbArgs args() const { return {.x = x_.view(), .weight = weight_.view(), .out = out_.view()}; }
    GuardedTensor& x() { return x_; }
    GuardedTensor& weight() { return weight_; }
    GuardedTensor& out() { return out_; }
    Status run() const {
        return projection_ == Projection::kAbsorbQuery ? absorb_query(args()) : project_output(args());
    }

    void expect_oracle() {
        ASSERT_EQ(out_.output_fault("out"), "");
        const auto& shape = out_.view().shape;
        for (std::int64_t row = 0; row < shape[0] * shape[1]; ++row) {
            const auto want = reference::project_row(args(), projection_, row / shape[1], row % shape[1]);
            for (std::int64_t j = 0; j < shape[2]; ++j) {
                const auto column = static_cast<std::size_t>(j);
                ASSERT_LE(std::abs(out_.get(row * shape[2] + j) - want.out[column]), want.bound[column])
                    << "row " << row << ", column " << j;
            }
        }
    }

private:
    Projection projection_;
    reference::Random random_;
    GuardedTensor x_, weight_, out_;
};

class AbsorbPaths : public testing::TestWithParam<CpuPath> {
protected:
    AbsorbPaths() : forced_(GetParam().name.c_str()) {}
    ForcedIsa forced_;
};

TEST_P(AbsorbPaths, FollowTheOracle) {
    const Sizes sizes[] = {
        {},
        {.n = 1, .h = 2},
        {.n = 70, .h = 1},
        {.n = 130, .h = 2, .head_dim = 64, .rank = 96},
        {.n = 3, .h = 2, .head_dim = 1, .rank = 1},
        {.n = 4, .h = 1, .head_dim = 33, .rank = 1203},
        {.n = 6, .h = 2, .head_dim = 700, .rank = 13},
    };
    std::uint64_t seed = 0;
    for (const Sizes& size : sizes) {
        for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
            for (const Projection projection : {Projection::kAbsorbQuery, Projection::kProjectOutput}) {
                SCOPED_TRACE(std::to_string(size.head_dim) + "/" + std::to_string(size.rank) + " " + name(dtype));
                AbsorbCase c(size, projection, dtype, ++seed);
                const Status status = c.run();
                ASSERT_TRUE(status.ok()) << status.message();
                c.expect_oracle();
            }
        }
    }
}

TEST_P(AbsorbPaths, NanAndInfinityStayInTheirRowAndHead) {
    for (const Projection projection : {Projection::kAbsorbQuery, Projection::kProjectOutput}) {
        const Sizes sizes{.n = 66, .h = 2, .head_dim = 40, .rank = 72};
        AbsorbCase c(sizes, projection, DType::kBFloat16, 7);
        const std::int64_t depth = c.x().view().shape[2];
        const std::int64_t columns = c.out().view().shape[2];
        c.x().set((3 * 2 + 0) * depth + 1, NAN);
        c.x().set((65 * 2 + 1) * depth + 2, INFINITY);
        ASSERT_TRUE(c.run().ok());
        for (std::int64_t row = 0; row < sizes.n * sizes.h; ++row) {
            for (std::int64_t j = 0; j < columns; ++j) {
                EXPECT_EQ(std::isfinite(c.out().get(row * columns + j)), row != 6 && row != 131) << row << " " << j;
            }
        }
    }
}

TEST_P(AbsorbPaths, EmptySizes) {
    for (const Sizes& sizes : {Sizes{.n = 0}, Sizes{.h = 0}, Sizes{.head_dim = 0}, Sizes{.rank = 0}}) {
        for (const Projection projection : {Projection::kAbsorbQuery, Projection::kProjectOutput}) {
            AbsorbCase c(sizes, projection, DType::kFloat16, 3);
            const Status status = c.run();
            ASSERT_TRUE(status.ok()) << status.message();
            c.expect_oracle();  // sums over nothing are zeros
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Native, AbsorbPaths, testing::ValuesIn(native_paths()),
                         [](const testing::TestParamInfo<CpuPath>& info) { return info.param.name; });

TEST(AbsorbArguments, RefusalsNameTheArgument) {
    AbsorbCase c({.n = 2, .h = 2, .head_dim = 8, .rank = 16}, Projection::kAbsorbQuery, DType::kBFloat16, 1);
    const auto refused = [&](const std::function<void(AbsorbArgs&)>& change, const std::string& message,
                             StatusCode code = StatusCode::kInvalidArgument) {
        AbsorbArgs args = c.args();
        change(args);
        const std::vector<std::byte> before = c.out().bytes();
        const Status status = absorb_query(args);
        EXPECT_EQ(status.code(), code) << message;
        EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
        EXPECT_TRUE(before == c.out().bytes()) << message;
    };
    refused([](AbsorbArgs& a) { a.x.rank = 2; }, "x: got rank 2, wanted rank 3: (n, h, head_dim)");
    refused([](AbsorbArgs& a) { a.weight.rank = 4; }, "weight: got rank 4");
    refused([](AbsorbArgs& a) { a.out.rank = 1; }, "out: got rank 1");
    refused([](AbsorbArgs& a) { a.weight.shape[0] = 3; }, "weight: got shape (3, 8, 16), wanted (h = 2");
    refused([](AbsorbArgs& a) { a.x.shape[2] = 9; }, "x: got shape (2, 2, 9), wanted (n, h, head_dim = 8)");
    refused([](AbsorbArgs& a) { a.out.shape[2] = 8; }, "out: got shape (2, 2, 8)");
    refused([](AbsorbArgs& a) { a.x.dtype = DType::kInt32; }, "x: got dtype int32");
    refused([](AbsorbArgs& a) { a.weight.dtype = DType::kFloat16; }, "weight: got dtype float16, wanted bfloat16");
    refused([](AbsorbArgs& a) { a.out.dtype = DType::kFloat32; }, "out: got dtype float32, wanted bfloat16");
    refused([](AbsorbArgs& a) { a.x.stride[2] = 2; }, "x: got strides");
    refused([](AbsorbArgs& a) { a.out.stride[0] = 0; }, "out: got shape (2, 2, 16) with strides");
    refused([](AbsorbArgs& a) { a.weight.data = nullptr; }, "weight: got a null pointer");
    refused(
        [](AbsorbArgs& a) {
            a.out.device = {DeviceType::kCuda, 0};
        },
        "out: got device cuda:0, wanted cpu, where x is");
    refused(
        [](AbsorbArgs& a) {
            a.x.device = a.weight.device = a.out.device = {DeviceType::kCuda, 0};
        },
        "absorb: no kernel runs on cuda:0; there is cpu_absorb", StatusCode::kUnsupported);
    const Status swapped = project_output(c.args());
    EXPECT_NE(swapped.message().find("x: got shape (2, 2, 8), wanted (n, h, kv_lora_rank = 16)"), std::string::npos);
}

}  // namespace
}  // namespace flashmla::cpu_tests
