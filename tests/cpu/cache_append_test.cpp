// append on every code path of the machine against the oracle, byte for byte over the whole pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/stream_copy.hpp"
#include "core/float_formats.hpp"
#include "cpu/paths.hpp"
#include "reference/cache.hpp"
#include "support/cache_case.hpp"

namespace flashmla::cpu_tests {
namespace {

using test::FormatCase;
using test::Ids;
using test::Pool;
using test::PoolSpec;
using test::Rows;

struct AppendCase {
    AppendCase(const FormatCase& format, const PoolSpec& spec, DType dtype, std::vector<std::int64_t> slots, bool wide)
        : pool(spec),
          latent(dtype, static_cast<std::int64_t>(slots.size()), format.d_qk - format.rope),
          rope(dtype, static_cast<std::int64_t>(slots.size()), format.rope),
          ids(std::move(slots), wide) {
        pool.fill(1, false);
        latent.fill(2, false);
        rope.fill(3, false);
        args.latent = latent.view();
        if (format.rope > 0) args.rope = rope.view();
        args.cache = pool.view();
        args.slot_ids = ids.view();
        args.cache_scale = 0.037;
    }

    Pool pool;
    Rows latent;
    Rows rope;
    Ids ids;
    AppendArgs args;
};

// The pool that the oracle makes of the case.
Pool expected(const AppendCase& c) {
    Pool pool = c.pool;
    AppendArgs args = c.args;
    args.cache = pool.view();
    reference::append(args);
    return pool;
}

// Every third slot or so, in random order, with skips.
std::vector<std::int64_t> some_slots(std::int64_t slots, std::int64_t count, std::uint64_t seed) {
    reference::Random random(seed);
    std::vector<std::int64_t> all(static_cast<std::size_t>(slots));
    std::iota(all.begin(), all.end(), 0);
    for (std::size_t i = all.size(); i > 1; --i) {
        std::swap(all[i - 1], all[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(i) - 1))]);
    }
    all.resize(static_cast<std::size_t>(std::min(count, slots)));
    for (std::size_t i = 0; i < all.size(); i += 5) {
        if (random.chance(0.5)) all[i] = i % 2 == 0 ? -1 : -1000000;
    }
    return all;
}

class CacheAppend : public testing::TestWithParam<std::string> {
protected:
    ForcedIsa forced_{GetParam().c_str()};
};

INSTANTIATE_TEST_SUITE_P(Matches, CacheAppend, testing::ValuesIn(test::native_paths()),
                         [](const auto& info) { return info.param; });

TEST_P(CacheAppend, EveryFormatPageAndDtypeToTheByte) {
    int variant = 0;
    for (const FormatCase& format : test::kFormatCases) {
        for (const std::int64_t page_size : {1, 2, 64, 69}) {
            for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
                ++variant;
                const bool packed = format.format == CacheFormat::kFp8_584;
                const PoolSpec spec{.format = format.format,
                                    .d_qk = format.d_qk,
                                    .page_size = page_size,
                                    .page_gap_bytes = variant % 3 * 576,
                                    .record_gap_bytes = packed ? 0 : variant % 2 * 32};
                AppendCase c(format, spec, dtype, some_slots(3 * page_size, 40, variant), variant % 2 == 0);
                c.args.power_of_two_scales = variant % 4 < 2;
                if (variant % 3 != 0) c.latent.fill(variant);  // finite: the way of most tokens
                Pool wanted = expected(c);
                Pool before = c.pool;
                const Status status = append(c.args);
                ASSERT_TRUE(status.ok()) << status.message();
                ASSERT_EQ(test::first_stray_write(before, c.pool, c.ids.values()), -1);
                ASSERT_TRUE(c.pool.bytes() == wanted.bytes())
                    << name(format.format) << " d_qk " << format.d_qk << " page " << page_size << " " << name(dtype);
            }
        }
    }
}

TEST_P(CacheAppend, RotaryEmbeddingInBothStyles) {
    constexpr std::int64_t kPositions = 50;
    Rows angles(DType::kFloat32, kPositions, 64);
    for (std::int64_t p = 0; p < kPositions; ++p) {
        for (std::int64_t i = 0; i < 32; ++i) {
            const double angle = static_cast<double>(p * 1000) * std::pow(10000.0, -static_cast<double>(i) / 32);
            angles.set(p, i, static_cast<float>(std::cos(angle)));
            angles.set(p, 32 + i, static_cast<float>(std::sin(angle)));
        }
    }
    for (const RotaryStyle style : {RotaryStyle::kInterleaved, RotaryStyle::kHalves}) {
        for (const FormatCase& format :
             {test::kFormatCases[0], test::kFormatCases[1], test::kFormatCases[3], test::kFormatCases[4]}) {
            const PoolSpec spec{.format = format.format, .d_qk = format.d_qk, .page_size = 7};
            AppendCase c(format, spec, DType::kFloat32, some_slots(21, 21, 9), true);
            c.rope.fill(5);
            std::vector<std::int64_t> positions;
            for (const std::int64_t slot : c.ids.values()) {
                positions.push_back(slot < 0 ? -77 : slot * 2);  // a skipped token's position is not looked at
            }
            const Ids position_ids(positions, false);
            c.args.positions = position_ids.view();
            c.args.cos_sin = angles.view();
            c.args.rotary_style = style;
            Pool wanted = expected(c);
            ASSERT_TRUE(append(c.args).ok());
            const reference::CacheTokens got(c.args.cache, format.d_qk);
            const reference::CacheTokens want(wanted.view(), format.d_qk);
            for (std::size_t n = 0; n < positions.size(); ++n) {
                const std::int64_t slot = c.ids.values()[n];
                if (slot < 0) continue;
                const std::vector<double> a = got.read(slot / 7, slot % 7);
                const std::vector<double> b = want.read(slot / 7, slot % 7);
                for (std::int64_t i = format.d_qk - 64; i < format.d_qk; ++i) {
                    // The kernel's three fp32 roundings may tip the rounding to 16 bits: one last place of the result,
                    // and, where the two products cancel, of the larger operand's fp32 value.
                    const std::int64_t k = i - (format.d_qk - 64);
                    const std::int64_t partner = style == RotaryStyle::kHalves ? (k + 32) % 64 : k ^ 1;
                    const double size = std::max(std::fabs(double{c.rope.get(static_cast<std::int64_t>(n), k)}),
                                                 std::fabs(double{c.rope.get(static_cast<std::int64_t>(n), partner)}));
                    const double ulp = format.format == CacheFormat::kFloat16 ? 0x1p-10 : 0x1p-7;
                    const double tiny = format.format == CacheFormat::kFloat16 ? 0x1p-24 : 0;
                    if (a[i] == b[i]) continue;
                    ASSERT_NEAR(a[i], b[i], ulp * std::fabs(b[i]) + 0x1p-22 * size + tiny) << "value " << i;
                }
            }
        }
    }
}

TEST_P(CacheAppend, OfTwoTokensForOneSlotTheLastStays) {
    const FormatCase format = test::kFormatCases[3];
    const PoolSpec spec{.format = format.format, .d_qk = format.d_qk, .num_pages = 20, .page_size = 64};
    std::vector<std::int64_t> slots;
    reference::Random random(4);
    for (int i = 0; i < 2500; ++i) slots.push_back(random.between(-20, 299));
    AppendCase c(format, spec, DType::kBFloat16, slots, false);
    Pool wanted = expected(c);
    ASSERT_TRUE(append(c.args).ok());
    EXPECT_TRUE(c.pool.bytes() == wanted.bytes());
}

TEST_P(CacheAppend, ANanOrInfinityCostsItsGroupNothing) {
    for (const FormatCase& format : {test::kFormatCases[3], test::kFormatCases[4]}) {
        const PoolSpec spec{.format = format.format, .d_qk = format.d_qk, .num_pages = 2, .page_size = 1};
        AppendCase c(format, spec, DType::kFloat32, {0, 1}, false);
        for (std::int64_t i = 0; i < format.d_qk - 64; ++i) {
            for (const std::int64_t token : {0, 1}) c.latent.set(token, i, static_cast<float>(i % 50) - 20.0f);
        }
        c.latent.set(1, 3, std::numeric_limits<float>::quiet_NaN());
        c.latent.set(1, 70, -std::numeric_limits<float>::infinity());
        ASSERT_TRUE(append(c.args).ok());
        const reference::CacheTokens cache(c.args.cache, format.d_qk);
        const std::vector<double> clean = cache.read(0, 0);
        const std::vector<double> spoiled = cache.read(1, 0);
        for (std::int64_t i = 0; i < format.d_qk - 64; ++i) {
            if (i == 3) {
                EXPECT_TRUE(std::isnan(spoiled[i]));
            } else if (i == 70) {
                EXPECT_GE(-spoiled[i], 29.0);  // the largest finite magnitude of its group, up to the scale's rounding
                EXPECT_LE(-spoiled[i], 64.0);
            } else {
                EXPECT_EQ(spoiled[i], clean[i]) << name(format.format) << " value " << i;
            }
        }
    }
}

// A call of many megabytes puts records together and writes them past the caches; small calls do neither.
TEST_P(CacheAppend, OneLargeCallWritesWhatManySmallOnesDo) {
    int variant = 0;
    for (const FormatCase& format : test::kFormatCases) {
        const std::int64_t record = cache_record_bytes(format.format, format.d_qk);
        if (record < 500) continue;  // narrow ones would take many tokens
        ++variant;
        const bool packed = format.format == CacheFormat::kFp8_584;
        const std::int64_t page_size = variant % 2 == 0 ? 64 : 37;
        // 13 tokens more than the bytes ask for, so that the last ones are no whole group.
        const std::int64_t tokens = backends::cpu::kStreamBytes / record + 13;
        const PoolSpec spec{.format = format.format,
                            .d_qk = format.d_qk,
                            .num_pages = tokens / page_size + 3,
                            .page_size = page_size,
                            .page_gap_bytes = variant % 3 * 48,
                            .record_gap_bytes = packed ? 0 : variant / 3 * 16};
        // Pages from the last one down, a few tokens left out, a few given again by later ones.
        std::vector<std::int64_t> slots;
        reference::Random random(variant);
        for (std::int64_t i = 0; i < tokens; ++i) {
            slots.push_back((spec.num_pages - 1 - i / page_size) * page_size + i % page_size);
            if (random.chance(0.01)) slots.back() = -1;
            if (i > 0 && random.chance(0.01)) slots.back() = slots[random.between(0, i - 1)];
        }
        AppendCase c(format, spec, DType::kBFloat16, slots, variant % 2 == 0);
        Pool wanted = c.pool;
        AppendArgs part = c.args;
        part.cache = wanted.view();
        constexpr std::int64_t kPart = 500;
        for (std::int64_t begin = 0; begin < tokens; begin += kPart) {
            const auto skip = [&](TensorView view, const TensorView& whole) {
                const std::int64_t bytes = begin * whole.stride[0] * static_cast<std::int64_t>(size_bytes(whole.dtype));
                view.data = static_cast<std::uint8_t*>(whole.data) + bytes;
                view.shape[0] = std::min(kPart, tokens - begin);
                return view;
            };
            part.latent = skip(part.latent, c.args.latent);
            if (part.rope.rank != 0) part.rope = skip(part.rope, c.args.rope);
            part.slot_ids = skip(part.slot_ids, c.args.slot_ids);
            ASSERT_TRUE(append(part).ok());
        }
        ASSERT_TRUE(append(c.args).ok());
        ASSERT_TRUE(c.pool.bytes() == wanted.bytes()) << name(format.format) << " d_qk " << format.d_qk;
    }
}

TEST(CacheAppendThreads, BitsDoNotDependOnTheirNumber) {
    for (const std::size_t which : {0u, 3u, 4u}) {
        const FormatCase& format = test::kFormatCases[which];
        const std::int64_t tokens = backends::cpu::kStreamBytes / 584 + 100;  // past the caches in every format
        const PoolSpec spec{.format = format.format, .d_qk = format.d_qk, .num_pages = 50, .page_size = 64};
        std::vector<std::int64_t> slots;
        reference::Random random(8);
        for (std::int64_t i = 0; i < tokens; ++i) slots.push_back(random.between(0, 3199));
        AppendCase c(format, spec, DType::kBFloat16, slots, true);
        const Pool before = c.pool;
        std::vector<std::uint8_t> first;
        for (const int threads : {1, 2, 3, 8}) {
            c.pool = before;
            const TensorView cache = c.pool.view();
            core::AppendCall call;
            call.cache = {.format = format.format,
                          .d_qk = static_cast<int>(format.d_qk),
                          .num_pages = 50,
                          .page_size = 64,
                          .page_bytes = cache.stride[0] * static_cast<std::int64_t>(size_bytes(cache.dtype)),
                          .record_bytes = cache.stride[1] * static_cast<std::int64_t>(size_bytes(cache.dtype)),
                          .scale = 1,
                          .data = static_cast<std::uint8_t*>(cache.data)};
            call.tokens = tokens;
            call.latent = {.data = c.latent.bytes().data(),
                           .dtype = DType::kBFloat16,
                           .row_bytes = 2 * c.args.latent.stride[0],
                           .width = static_cast<int>(format.d_qk - 64)};
            call.rope = {.data = c.rope.bytes().data(),
                         .dtype = DType::kBFloat16,
                         .row_bytes = 2 * c.args.rope.stride[0],
                         .width = 64};
            call.slots = {.data = c.args.slot_ids.data, .wide = true};
            call.max_threads = threads;
            ASSERT_TRUE(backends::cpu::append(call).ok());
            if (first.empty()) first = c.pool.bytes();
            ASSERT_TRUE(c.pool.bytes() == first) << threads << " threads, " << name(format.format);
        }
    }
}

}  // namespace
}  // namespace flashmla::cpu_tests
