// What merge refuses, in words, without writing.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "flashmla/merge.hpp"
#include "support/guarded_tensor.hpp"

namespace flashmla::test {
namespace {

using testing_support::GuardedTensor;

struct Call {
    std::vector<TensorView> outs, lses;
    TensorView out, lse;
};

class MergeArguments : public testing::Test {
protected:
    MergeArguments() {
        for (int i = 0; i < 2; ++i) {
            part_outs_.emplace_back(DType::kBFloat16, std::vector<std::int64_t>{2, 3, 4, 8});
            part_lses_.emplace_back(DType::kFloat32, std::vector<std::int64_t>{2, 4, 3});
            for (std::int64_t e = 0; e < 24 * 8; ++e) part_outs_.back().set(e, 1);
            for (std::int64_t e = 0; e < 24; ++e) part_lses_.back().set(e, 0);
        }
    }

    Call legal() {
        return {{part_outs_[0].view(), part_outs_[1].view()},
                {part_lses_[0].view(), part_lses_[1].view()},
                out_.view(),
                lse_.view()};
    }
    static Status run(const Call& call) {
        return merge({.outs = call.outs, .lses = call.lses, .out = call.out, .lse = call.lse});
    }

    void expect_refused(const std::function<void(Call&)>& change, StatusCode code, const std::string& message) {
        Call call = legal();
        change(call);
        const std::vector<std::byte> out = out_.bytes();
        const std::vector<std::byte> lse = lse_.bytes();
        const Status status = run(call);
        EXPECT_EQ(status.code(), code) << message;
        EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
        EXPECT_TRUE(out == out_.bytes() && lse == lse_.bytes()) << message;
    }

    std::vector<GuardedTensor> part_outs_, part_lses_;
    GuardedTensor out_{DType::kFloat16, {2, 3, 4, 8}};
    GuardedTensor lse_{DType::kFloat32, {2, 4, 3}};
};

TEST_F(MergeArguments, ALegalCallIsServed) {
    const Status status = run(legal());
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(out_.get(0), 1);
}

TEST_F(MergeArguments, RefusalsNameTheArgument) {
    const auto invalid = [&](const std::function<void(Call&)>& change, const std::string& message) {
        expect_refused(change, StatusCode::kInvalidArgument, message);
    };
    invalid([](Call& c) { c.outs.clear(); }, "outs: got none");
    invalid([](Call& c) { c.lses.pop_back(); }, "lses: got 1, wanted as many as outs, 2");
    invalid([](Call& c) { c.outs[0].rank = 2; }, "outs[0]: got rank 2");
    invalid([](Call& c) { c.outs[1].rank = 3; }, "outs[1]: got rank 3, wanted rank 4");
    invalid([](Call& c) { c.outs[0].shape[2] = -1; }, "outs[0]: got shape (2, 3, -1, 8)");
    invalid([](Call& c) { c.outs[1].shape[3] = 9; }, "outs[1]: got shape (2, 3, 4, 9)");
    invalid([](Call& c) { c.outs[1].dtype = DType::kInt32; }, "outs[1]: got dtype int32");
    invalid([](Call& c) { c.outs[1].stride[3] = 2; }, "outs[1]: got strides");
    invalid([](Call& c) { c.outs[1].data = nullptr; }, "outs[1]: got a null pointer");
    invalid([](Call& c) { c.outs[1].device = {DeviceType::kCuda, 0}; }, "outs[1]: got device cuda:0, wanted cpu");
    invalid([](Call& c) { std::swap(c.lses[1].shape[1], c.lses[1].shape[2]); }, "lses[1]: got shape (2, 3, 4)");
    invalid([](Call& c) { c.lses[0].rank = 2; }, "lses[0]: got rank 2");
    invalid([](Call& c) { c.lses[0].dtype = DType::kBFloat16; }, "lses[0]: got dtype bfloat16, wanted float32");
    invalid([](Call& c) { c.out.shape[0] = 3; }, "out: got shape (3, 3, 4, 8)");
    invalid([](Call& c) { c.out.stride[1] = 0; }, "out: got shape (2, 3, 4, 8) with strides");
    invalid([](Call& c) { c.lse.stride[2] = 0; }, "lse: got shape (2, 4, 3) with strides");
    invalid([](Call& c) { c.lse.device = {DeviceType::kCpu, 1}; }, "lse: got device cpu:1");
    const auto to_cuda = [](Call& c) {
        for (TensorView* view : {&c.outs[0], &c.outs[1], &c.lses[0], &c.lses[1], &c.out, &c.lse}) {
            view->device = {DeviceType::kCuda, 1};
        }
    };
    expect_refused(to_cuda, StatusCode::kUnsupported, "merge: no kernel runs on cuda:1; there is cpu_merge");
}

TEST_F(MergeArguments, TensorsOfRankThreeHaveNoBatch) {
    Call call = legal();
    const auto drop_batch = [](TensorView& view) {
        --view.rank;
        for (std::size_t axis = 0; axis + 1 < kMaxRank; ++axis) {
            view.shape[axis] = view.shape[axis + 1];
            view.stride[axis] = view.stride[axis + 1];
        }
    };
    for (TensorView* view : {&call.outs[0], &call.outs[1], &call.out}) drop_batch(*view);
    for (TensorView* view : {&call.lses[0], &call.lses[1], &call.lse}) drop_batch(*view);
    const Status refused = run(call);  // (h_q, s_q) instead of (s_q, h_q)
    EXPECT_NE(refused.message().find("lses[0]: got shape (4, 3)"), std::string::npos) << refused.message();
    for (TensorView* view : {&call.lses[0], &call.lses[1], &call.lse}) {
        std::swap(view->shape[0], view->shape[1]);
        std::swap(view->stride[0], view->stride[1]);
    }
    const Status status = run(call);
    EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace flashmla::test
