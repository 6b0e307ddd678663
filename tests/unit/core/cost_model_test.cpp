#include "core/cost_model.hpp"

#include <gtest/gtest.h>

namespace flashmla::core {
namespace {

constexpr std::int64_t kKeys = 8 * 8192;

DecodeShape deepseek_step() {
    DecodeShape shape;
    shape.b = 8;
    shape.h_q = 128;
    return shape;
}

TEST(CostModel, CountsEveryTensorOnce) {
    const DecodeCost cost = decode_cost(deepseek_step(), kKeys);
    EXPECT_EQ(cost.kv_bytes, 72.0 * 1024 * 1024);
    EXPECT_EQ(cost.q_bytes, 8.0 * 128 * 576 * 2);
    EXPECT_EQ(cost.out_bytes, 8.0 * 128 * (512 * 2 + 4));
    EXPECT_EQ(cost.bytes(), cost.kv_bytes + cost.q_bytes + cost.out_bytes);
    EXPECT_EQ(cost.flops, 2.0 * 128 * 65536 * 1088);
}

TEST(CostModel, QueryTokensAndKvHeads) {
    DecodeShape shape = deepseek_step();
    shape.s_q = 2;
    shape.h_kv = 2;
    const DecodeCost one = decode_cost(deepseek_step(), kKeys);
    const DecodeCost two = decode_cost(shape, kKeys);
    EXPECT_EQ(two.kv_bytes, 2 * one.kv_bytes);
    EXPECT_EQ(two.flops, 2 * one.flops);
    EXPECT_EQ(two.q_bytes, 2 * one.q_bytes);
}

TEST(CostModel, EmptyBatchCostsNothing) {
    DecodeShape shape;
    EXPECT_EQ(decode_cost(shape, 0).bytes(), 0);
    EXPECT_EQ(decode_cost(shape, 0).flops, 0);
}

TEST(CostModel, MultiHeadCacheIsFiftySevenTimesLarger) {
    const double mha = mha_kv_bytes(128, 128, kKeys, DType::kBFloat16);
    EXPECT_EQ(mha, 4096.0 * 1024 * 1024);
    EXPECT_NEAR(mha / decode_cost(deepseek_step(), kKeys).kv_bytes, 56.9, 0.05);
}

TEST(CostModel, RooflineTakesTheSlowerOfTheTwo) {
    DeviceInfo device;
    device.memory_gbps = 100;
    device.matrix_tflops = 1;
    EXPECT_DOUBLE_EQ(roofline(1e9, 1e9, device).seconds(), 0.01);
    EXPECT_TRUE(roofline(1e9, 1e9, device).memory_bound());
    EXPECT_DOUBLE_EQ(roofline(1e9, 1e12, device).seconds(), 1);
    EXPECT_FALSE(roofline(1e9, 1e12, device).memory_bound());
}

TEST(CostModel, UnknownRatesDoNotBind) { EXPECT_EQ(roofline(1e9, 1e9, DeviceInfo{}).seconds(), 0); }

}  // namespace
}  // namespace flashmla::core
