// Merging through C: the numbers of the C++ call, and refusals in words.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "unit/capi/c_call.hpp"

namespace flashmla::test {
namespace {

// Two partial results of one token and two heads.
struct CMergeCall {
    float first_out[8], second_out[8], first_lse[2], second_lse[2], out[8], lse[2];
    flashmla_tensor tensors[6];
    const flashmla_tensor* outs[2] = {&tensors[0], &tensors[1]};
    const flashmla_tensor* lses[2] = {&tensors[2], &tensors[3]};
    flashmla_merge_args args;

    CMergeCall() {
        for (int i = 0; i < 8; ++i) {
            first_out[i] = static_cast<float>(i);
            second_out[i] = -1;
            out[i] = 77;
        }
        first_lse[0] = 0.5f;
        second_lse[0] = 1.25f;
        first_lse[1] = std::numeric_limits<float>::infinity();  // no key in this part
        second_lse[1] = 3;
        const int64_t rows[] = {1, 2, 4}, heads[] = {1, 2};
        tensors[0] = flashmla_contiguous(first_out, FLASHMLA_FLOAT32, 3, rows);
        tensors[1] = flashmla_contiguous(second_out, FLASHMLA_FLOAT32, 3, rows);
        tensors[2] = flashmla_contiguous(first_lse, FLASHMLA_FLOAT32, 2, heads);
        tensors[3] = flashmla_contiguous(second_lse, FLASHMLA_FLOAT32, 2, heads);
        tensors[4] = flashmla_contiguous(out, FLASHMLA_FLOAT32, 3, rows);
        tensors[5] = flashmla_contiguous(lse, FLASHMLA_FLOAT32, 2, heads);
        FLASHMLA_INIT(&args);
        args.count = 2;
        args.outs = outs;
        args.lses = lses;
        args.out = &tensors[4];
        args.lse = &tensors[5];
    }
};

TEST(CMerge, WeighsThePartsByTheirLse) {
    CMergeCall call;
    ASSERT_EQ(flashmla_merge(&call.args, nullptr), FLASHMLA_OK) << flashmla_last_error();
    const double weight = 1 / (1 + std::exp(0.75));  // of the first part
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(call.out[i], weight * i - (1 - weight), 1e-6);
    for (int i = 4; i < 8; ++i) EXPECT_EQ(call.out[i], -1);
    EXPECT_NEAR(call.lse[0], std::log(std::exp(0.5) + std::exp(1.25)), 1e-6);
    EXPECT_EQ(call.lse[1], 3);
}

TEST(CMerge, RefusalsNameThePart) {
    using Spoil = void (*)(CMergeCall&);
    const struct {
        const char* part;
        Spoil spoil;
    } cases[] = {
        {"args.struct_size: got 4", [](CMergeCall& c) { c.args.struct_size = 4; }},
        {"count: got 0", [](CMergeCall& c) { c.args.count = 0; }},
        {"count: got -1", [](CMergeCall& c) { c.args.count = -1; }},
        {"outs: got a null pointer", [](CMergeCall& c) { c.args.outs = nullptr; }},
        {"lses: got a null pointer", [](CMergeCall& c) { c.args.lses = nullptr; }},
        {"outs[1]: got a null pointer", [](CMergeCall& c) { c.outs[1] = nullptr; }},
        {"lses[1].dtype: got 0", [](CMergeCall& c) { c.tensors[3].dtype = 0; }},
        {"out: got rank 0", [](CMergeCall& c) { c.args.out = nullptr; }},
    };
    for (const auto& bad : cases) {
        CMergeCall call;
        bad.spoil(call);
        EXPECT_TRUE(refused(flashmla_merge(&call.args, nullptr), FLASHMLA_INVALID_ARGUMENT, bad.part));
        EXPECT_EQ(call.out[0], 77);
    }
    EXPECT_TRUE(refused(flashmla_merge(nullptr, nullptr), FLASHMLA_INVALID_ARGUMENT, "args: got a null pointer"));
}

}  // namespace
}  // namespace flashmla::test
