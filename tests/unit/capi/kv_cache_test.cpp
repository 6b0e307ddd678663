// The cache operations through C: the bytes of the C++ calls, zero fields that mean the defaults, refusals in words.
#include <gtest/gtest.h>

#include <vector>

#include "unit/capi/c_call.hpp"

namespace flashmla::test {
namespace {

constexpr int64_t kTokens = 3, kLatent = 512, kRope = 64, kPages = 2, kPage = 2, kRecord = 656;

// Three tokens for pages of 656-byte records.
struct CCacheCall {
    std::vector<float> latent = std::vector<float>(kTokens * kLatent), rope = std::vector<float>(kTokens * kRope);
    std::vector<uint8_t> cache = std::vector<uint8_t>(kPages * kPage * kRecord, 0xee);
    std::vector<int32_t> slots = {3, -1, 0};
    flashmla_tensor latent_view, rope_view, cache_view, slots_view;
    flashmla_append_args args;

    CCacheCall() {
        for (size_t i = 0; i < latent.size(); ++i) latent[i] = 0.01f * static_cast<float>(i % 97) - 0.3f;
        for (size_t i = 0; i < rope.size(); ++i) rope[i] = static_cast<float>(i % 5);
        const int64_t latent_shape[] = {kTokens, kLatent}, rope_shape[] = {kTokens, kRope};
        const int64_t cache_shape[] = {kPages, kPage, 1, kRecord}, slots_shape[] = {kTokens};
        latent_view = flashmla_contiguous(latent.data(), FLASHMLA_FLOAT32, 2, latent_shape);
        rope_view = flashmla_contiguous(rope.data(), FLASHMLA_FLOAT32, 2, rope_shape);
        cache_view = flashmla_contiguous(cache.data(), FLASHMLA_UINT8, 4, cache_shape);
        slots_view = flashmla_contiguous(slots.data(), FLASHMLA_INT32, 1, slots_shape);
        FLASHMLA_INIT(&args);
        args.latent = &latent_view;
        args.rope = &rope_view;
        args.cache = &cache_view;
        args.slot_ids = &slots_view;
    }

    AppendArgs cpp_args(std::vector<uint8_t>& other_cache) const {
        AppendArgs cpp;
        cpp.latent = contiguous_view(latent.data(), DType::kFloat32, {kTokens, kLatent});
        cpp.rope = contiguous_view(rope.data(), DType::kFloat32, {kTokens, kRope});
        cpp.cache = contiguous_view(other_cache.data(), DType::kUInt8, {kPages, kPage, 1, kRecord});
        cpp.slot_ids = contiguous_view(slots.data(), DType::kInt32, {kTokens});
        return cpp;
    }
};

TEST(CCache, AppendWritesTheBytesOfTheCppCall) {
    for (const bool exact : {false, true}) {
        CCacheCall call;
        std::vector<uint8_t> cpp_cache(call.cache.size(), 0xee);
        AppendArgs cpp = call.cpp_args(cpp_cache);
        cpp.power_of_two_scales = !exact;
        call.args.scale_rounding = exact ? FLASHMLA_SCALES_EXACT : FLASHMLA_SCALES_POWER_OF_TWO;
        ASSERT_TRUE(append(cpp).ok());
        ASSERT_EQ(flashmla_append(&call.args, nullptr), FLASHMLA_OK) << flashmla_last_error();
        EXPECT_EQ(call.cache, cpp_cache);
        EXPECT_EQ(call.cache[kRecord], 0xee);  // slot 1 was not named
    }
}

TEST(CCache, GatherReadsBackWhatAppendWrote) {
    CCacheCall call;
    ASSERT_EQ(flashmla_append(&call.args, nullptr), FLASHMLA_OK) << flashmla_last_error();
    std::vector<float> rows(kTokens * (kLatent + kRope), 99);
    const int64_t rows_shape[] = {kTokens, kLatent + kRope};
    const flashmla_tensor rows_view = flashmla_contiguous(rows.data(), FLASHMLA_FLOAT32, 2, rows_shape);
    flashmla_gather_args args;
    FLASHMLA_INIT(&args);
    args.d_qk = kLatent + kRope;
    args.cache = &call.cache_view;
    args.slot_ids = &call.slots_view;
    args.out = &rows_view;
    ASSERT_EQ(flashmla_gather(&args, nullptr), FLASHMLA_OK) << flashmla_last_error();
    for (int64_t i = 0; i < kLatent; ++i) {
        EXPECT_NEAR(rows[i], call.latent[i], 0.04f);  // e4m3 of values up to 0.7: half a step of 1/16 of the value
        EXPECT_EQ(rows[kLatent + kRope + i], 0);      // the slot was negative
    }
    for (int64_t i = 0; i < kRope; ++i) EXPECT_EQ(rows[kLatent + i], call.rope[i]);
}

TEST(CCache, PagesAreCopiedAndConverted) {
    CCacheCall call;
    ASSERT_EQ(flashmla_append(&call.args, nullptr), FLASHMLA_OK) << flashmla_last_error();
    std::vector<int32_t> pair = {0, 1};
    const int64_t pair_shape[] = {1, 2};
    const flashmla_tensor pair_view = flashmla_contiguous(pair.data(), FLASHMLA_INT32, 2, pair_shape);
    flashmla_copy_pages_args copy;
    FLASHMLA_INIT(&copy);
    copy.d_qk = kLatent + kRope;
    copy.source = copy.destination = &call.cache_view;
    copy.page_pairs = &pair_view;
    ASSERT_EQ(flashmla_copy_pages(&copy, nullptr), FLASHMLA_OK) << flashmla_last_error();
    const auto page = call.cache.begin() + kPage * kRecord;
    EXPECT_TRUE(std::equal(call.cache.begin(), page, page));

    flashmla_tensor endless_view = pair_view;  // one pair in memory, 2^40 in the shape
    endless_view.shape[0] = int64_t{1} << 40;
    endless_view.stride[0] = 0;
    copy.page_pairs = &endless_view;
    EXPECT_TRUE(refused(flashmla_copy_pages(&copy, nullptr), FLASHMLA_INVALID_ARGUMENT,
                        "page_pairs: got destination page 1 twice"));

    std::vector<uint8_t> flat(kPages * kPage * (kLatent + kRope), 0xee);
    const int64_t flat_shape[] = {kPages, kPage, 1, kLatent + kRope};
    const flashmla_tensor flat_view = flashmla_contiguous(flat.data(), FLASHMLA_UINT8, 4, flat_shape);
    flashmla_convert_args convert;
    FLASHMLA_INIT(&convert);
    convert.d_qk = kLatent + kRope;
    convert.source = &call.cache_view;
    convert.destination = &flat_view;
    convert.has_destination_scale = 1;
    convert.destination_scale = 0;
    EXPECT_TRUE(refused(flashmla_convert(&convert, nullptr), FLASHMLA_INVALID_ARGUMENT, "scale"));
    convert.has_destination_scale = 0;  // the scale is 1.0, whatever stands in the field
    ASSERT_EQ(flashmla_convert(&convert, nullptr), FLASHMLA_OK) << flashmla_last_error();
    EXPECT_EQ(call.rope[2 * kRope + 1], 4.0f);
    EXPECT_EQ(flat[kLatent + 1], 0x48);  // its e4m3 code: slot 0 holds token 2
}

TEST(CCache, RefusalsNameTheArgument) {
    using Spoil = void (*)(CCacheCall&);
    const struct {
        const char* part;
        Spoil spoil;
    } cases[] = {
        {"args.struct_size: got 8", [](CCacheCall& c) { c.args.struct_size = 8; }},
        {"rotary_style: got 2, wanted 0 or 1", [](CCacheCall& c) { c.args.rotary_style = 2; }},
        {"scale_rounding: got -1, wanted 0 or 1", [](CCacheCall& c) { c.args.scale_rounding = -1; }},
        {"has_cache_scale: got 9, wanted 0 or 1", [](CCacheCall& c) { c.args.has_cache_scale = 9; }},
        {"latent: got rank 0", [](CCacheCall& c) { c.args.latent = nullptr; }},
        {"cache.dtype: got 99", [](CCacheCall& c) { c.cache_view.dtype = 99; }},
        {"slot_ids", [](CCacheCall& c) { c.slots[0] = 4; }},
    };
    for (const auto& bad : cases) {
        CCacheCall call;
        bad.spoil(call);
        EXPECT_TRUE(refused(flashmla_append(&call.args, nullptr), FLASHMLA_INVALID_ARGUMENT, bad.part));
        EXPECT_EQ(call.cache, std::vector<uint8_t>(call.cache.size(), 0xee));
    }
    EXPECT_TRUE(refused(flashmla_append(nullptr, nullptr), FLASHMLA_INVALID_ARGUMENT, "args: got a null pointer"));
    EXPECT_TRUE(refused(flashmla_gather(nullptr, nullptr), FLASHMLA_INVALID_ARGUMENT, "args: got a null pointer"));
    EXPECT_TRUE(refused(flashmla_copy_pages(nullptr, nullptr), FLASHMLA_INVALID_ARGUMENT, "args: got a null pointer"));
    EXPECT_TRUE(refused(flashmla_convert(nullptr, nullptr), FLASHMLA_INVALID_ARGUMENT, "args: got a null pointer"));
}

}  // namespace
}  // namespace flashmla::test
