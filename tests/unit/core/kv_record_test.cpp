// Every part of a record is found where the byte maps of docs/kv_formats.md put it, and decodes to its definition.
#include "core/kv_record.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace flashmla::core {
namespace {

std::vector<float> decoded(CacheFormat format, const std::vector<std::uint8_t>& page, std::int64_t token,
                           std::int64_t page_size, int d_qk, float flat_scale = 1) {
    std::vector<float> row(static_cast<std::size_t>(d_qk));
    const std::int64_t record = cache_record_bytes(format, d_qk);
    decode_token(format, page.data(), token, page_size, record, d_qk, row.data(), flat_scale);
    const RecordParts<const std::uint8_t> parts = record_parts(format, page.data(), token, page_size, record);
    for (int i = 0; i < d_qk; ++i) {
        const float single = record_value(format, parts, i, flat_scale);
        EXPECT_TRUE(single == row[i] || (std::isnan(single) && std::isnan(row[i]))) << name(format) << " value " << i;
    }
    return row;
}

// Bytes that differ from place to place, 0xff (a NaN in every format) where a test writes nothing.
std::vector<std::uint8_t> blank_page(CacheFormat format, int d_qk, std::int64_t page_size) {
    return std::vector<std::uint8_t>(static_cast<std::size_t>(cache_page_bytes(format, d_qk, page_size)), 0xff);
}

TEST(KvRecord, Finds656PartsWithinTheRecord) {
    constexpr std::int64_t kPage = 3;
    for (std::int64_t token = 0; token < kPage; ++token) {
        std::vector<std::uint8_t> page = blank_page(CacheFormat::kFp8_656, 576, kPage);
        std::uint8_t* record = page.data() + token * 656;
        for (int i = 0; i < 512; ++i) record[i] = static_cast<std::uint8_t>(i % 127);
        const float scales[4] = {0x1p-13f, 0.75f, 3.0f, 0x1p8f};
        std::memcpy(record + 512, scales, sizeof(scales));
        for (int i = 0; i < 64; ++i) {
            const std::uint16_t code = float_to_bf16(static_cast<float>(i - 20));
            std::memcpy(record + 528 + 2 * i, &code, 2);
        }
        const std::vector<float> row = decoded(CacheFormat::kFp8_656, page, token, kPage, 576);
        for (int i = 0; i < 512; ++i) ASSERT_EQ(row[i], e4m3_to_float(i % 127) * scales[i / 128]) << i;
        for (int i = 0; i < 64; ++i) ASSERT_EQ(row[512 + i], static_cast<float>(i - 20)) << i;
    }
}

TEST(KvRecord, Finds584ScalesAfterTheValuesOfThePage) {
    for (const std::int64_t page_size : {1, 2, 3, 64, 69}) {
        const std::int64_t token = page_size - 1;
        std::vector<std::uint8_t> page = blank_page(CacheFormat::kFp8_584, 512, page_size);
        ASSERT_EQ(page.size() % 576, 0u);
        ASSERT_GE(page.size(), static_cast<std::size_t>(page_size * 584));
        std::uint8_t* values = page.data() + token * 576;
        std::uint8_t* scales = page.data() + page_size * 576 + token * 8;
        for (int i = 0; i < 448; ++i) values[i] = static_cast<std::uint8_t>(0x80 + i % 127);
        for (int i = 0; i < 64; ++i) {
            const std::uint16_t code = float_to_bf16(static_cast<float>(i) * 0.5f);
            std::memcpy(values + 448 + 2 * i, &code, 2);
        }
        for (int g = 0; g < 7; ++g) scales[g] = static_cast<std::uint8_t>(127 - 13 + 3 * g);
        const std::vector<float> row = decoded(CacheFormat::kFp8_584, page, token, page_size, 512);
        for (int i = 0; i < 448; ++i) {
            ASSERT_EQ(row[i], std::ldexp(e4m3_to_float(0x80 + i % 127), 3 * (i / 64) - 13)) << i;
        }
        for (int i = 0; i < 64; ++i) ASSERT_EQ(row[448 + i], static_cast<float>(i) * 0.5f) << i;
    }
}

TEST(KvRecord, DecodesPlainRecordsOfAnyWidth) {
    for (const int d_qk : {1, 320, 576}) {
        std::vector<std::uint8_t> page = blank_page(CacheFormat::kBFloat16, d_qk, 2);
        std::vector<std::uint8_t> halves = page;
        std::vector<std::uint8_t> flat = blank_page(CacheFormat::kFp8Flat, d_qk, 2);
        for (int i = 0; i < d_qk; ++i) {
            const std::uint16_t bf16 = float_to_bf16(static_cast<float>(i));
            const std::uint16_t fp16 = float_to_fp16(static_cast<float>(i));
            std::memcpy(page.data() + 2 * (d_qk + i), &bf16, 2);
            std::memcpy(halves.data() + 2 * (d_qk + i), &fp16, 2);
            flat[d_qk + i] = static_cast<std::uint8_t>(i % 127);
        }
        const std::vector<float> a = decoded(CacheFormat::kBFloat16, page, 1, 2, d_qk);
        const std::vector<float> b = decoded(CacheFormat::kFloat16, halves, 1, 2, d_qk);
        const std::vector<float> c = decoded(CacheFormat::kFp8Flat, flat, 1, 2, d_qk, 0.3f);
        for (int i = 0; i < d_qk; ++i) {
            ASSERT_EQ(a[i], bf16_to_float(float_to_bf16(static_cast<float>(i))));
            ASSERT_EQ(b[i], fp16_to_float(float_to_fp16(static_cast<float>(i))));
            ASSERT_EQ(c[i], e4m3_to_float(i % 127) * 0.3f);
        }
    }
}

TEST(KvRecord, TokenStrideOfAContiguousRecordIsHonoured) {
    std::vector<std::uint8_t> pool(2 * 700, 0xff);
    for (int i = 0; i < 20; ++i) pool[700 + i] = static_cast<std::uint8_t>(i);
    const CacheView cache{.format = CacheFormat::kFp8Flat,
                          .d_qk = 20,
                          .num_pages = 1,
                          .page_size = 2,
                          .page_bytes = 1400,
                          .record_bytes = 700,
                          .scale = 2,
                          .data = pool.data()};
    const RecordParts<std::uint8_t> parts = record_parts(cache, 0, 1);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(parts.values[i], i);
}

TEST(KvRecord, NanCodesStayNan) {
    std::vector<std::uint8_t> page(656);
    page[3] = 0x7f;
    page[130] = 0xff;
    const float scales[4] = {1, 1, 1, std::nanf("")};
    std::memcpy(page.data() + 512, scales, sizeof(scales));
    const std::vector<float> row = decoded(CacheFormat::kFp8_656, page, 0, 1, 576);
    for (int i = 0; i < 576; ++i) {
        EXPECT_EQ(std::isnan(row[i]), i == 3 || i == 130 || (i >= 384 && i < 512)) << i;
    }
}

}  // namespace
}  // namespace flashmla::core
