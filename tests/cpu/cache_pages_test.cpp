// copy_pages and convert against the oracle, over the whole destination: padding and other layers stay as they were.
#include <gtest/gtest.h>

#include <cmath>

#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/stream_copy.hpp"
#include "cpu/paths.hpp"
#include "reference/cache.hpp"
#include "support/cache_case.hpp"

namespace flashmla::cpu_tests {
namespace {

using test::FormatCase;
using test::Pool;
using test::PoolSpec;

class CachePages : public testing::TestWithParam<std::string> {
protected:
    ForcedIsa forced_{GetParam().c_str()};
};

INSTANTIATE_TEST_SUITE_P(Matches, CachePages, testing::ValuesIn(test::native_paths()),
                         [](const auto& info) { return info.param; });

TEST_P(CachePages, ConvertsBetweenAllFormatsOfOneWidth) {
    int variant = 0;
    for (const FormatCase& from : test::kFormatCases) {
        for (const CacheFormat to : kAllCacheFormats) {
            if (to == CacheFormat::kFp8_656 && from.d_qk != 576) continue;
            if (to == CacheFormat::kFp8_584 && from.d_qk != 512) continue;
            ++variant;
            const std::int64_t page_size = variant % 2 == 0 ? 5 : 64;
            Pool source(
                {.format = from.format, .d_qk = from.d_qk, .page_size = page_size, .page_gap_bytes = variant % 3 * 64});
            Pool destination({.format = to,
                              .d_qk = from.d_qk,
                              .page_size = page_size,
                              .page_gap_bytes = variant % 2 * 576,
                              .record_gap_bytes = to == CacheFormat::kFp8_584 ? 0 : variant % 3 * 8});
            source.fill(variant, variant % 4 != 0);
            Pool wanted = destination;
            ConvertArgs args{.source = source.view(),
                             .destination = wanted.view(),
                             .d_qk = from.d_qk,
                             .source_scale = 0.5,
                             .destination_scale = 0.3,
                             .power_of_two_scales = variant % 2 == 0};
            reference::convert(args);
            args.destination = destination.view();
            const Status status = convert(args);
            ASSERT_TRUE(status.ok()) << status.message();
            // NaN keeps no payload: values are compared where there is one.
            if (variant % 4 == 0) {
                const reference::CacheTokens got(args.destination, from.d_qk);
                const reference::CacheTokens want(wanted.view(), from.d_qk);
                for (std::int64_t token = 0; token < page_size; ++token) {
                    const std::vector<double> a = got.read(2, token);
                    const std::vector<double> b = want.read(2, token);
                    for (std::size_t i = 0; i < a.size(); ++i) {
                        ASSERT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])));
                    }
                }
            } else {
                ASSERT_TRUE(destination.bytes() == wanted.bytes()) << name(from.format) << " to " << name(to);
            }
        }
    }
}

// A value that a format holds exactly comes back; each code of e4m3 is such a value at every power-of-two scale.
TEST_P(CachePages, RoundTripThroughPackedFormatsIsExactForTheirOwnValues) {
    for (const FormatCase& format : {test::kFormatCases[3], test::kFormatCases[4]}) {
        Pool packed({.format = format.format, .d_qk = format.d_qk, .num_pages = 2, .page_size = 16});
        Pool plain({.format = CacheFormat::kBFloat16, .d_qk = format.d_qk, .num_pages = 2, .page_size = 16});
        Pool again = packed;
        for (int token = 0; token < 32; ++token) {
            // Each group holds all codes of one sign from one end, the largest first, so that the quantiser finds the
            // group's scale again; scales from 2^-13 to 2^8 over the tokens.
            const std::vector<std::size_t> places = packed.record_bytes(token / 16, token % 16);
            const bool is_656 = format.format == CacheFormat::kFp8_656;
            const int group_size = is_656 ? 128 : 64;
            for (int i = 0; i < (is_656 ? 512 : 448); ++i) {
                const int code = 126 - i % group_size;
                packed.bytes()[places[i]] = static_cast<std::uint8_t>(std::max(code, 0) + (i / group_size % 2) * 128);
            }
            for (int group = 0; group < (is_656 ? 4 : 7); ++group) {
                const int exponent = (token + group) % 22 - 13;
                const auto code = static_cast<std::uint8_t>(127 + exponent);
                if (is_656) {
                    packed.bytes()[places[512 + 4 * group]] = 0;
                    packed.bytes()[places[512 + 4 * group + 1]] = 0;
                    packed.bytes()[places[512 + 4 * group + 2]] = static_cast<std::uint8_t>((code & 1) << 7);
                    packed.bytes()[places[512 + 4 * group + 3]] = static_cast<std::uint8_t>(code >> 1);
                } else {
                    packed.bytes()[places[576 + group]] = code;
                }
            }
            if (!is_656) packed.bytes()[places[583]] = 0;
            for (int i = 0; i < 128; ++i) {
                packed.bytes()[places[(is_656 ? 528 : 448) + i]] = static_cast<std::uint8_t>(i % 2 == 0 ? i : 0x3f);
            }
        }
        ASSERT_TRUE(convert({.source = packed.view(), .destination = plain.view(), .d_qk = format.d_qk}).ok());
        ASSERT_TRUE(convert({.source = plain.view(), .destination = again.view(), .d_qk = format.d_qk}).ok());
        ASSERT_TRUE(packed.bytes() == again.bytes()) << name(format.format);
    }
}

TEST_P(CachePages, CopiesRecordsAndNothingElse) {
    for (const FormatCase& format : test::kFormatCases) {
        const bool packed = format.format == CacheFormat::kFp8_584;
        PoolSpec spec{.format = format.format, .d_qk = format.d_qk, .num_pages = 6, .page_size = 5};
        spec.page_gap_bytes = 64;
        Pool source(spec);
        source.fill(1, false);
        spec.num_pages = 4;
        spec.page_gap_bytes = 128;
        spec.record_gap_bytes = packed ? 0 : 8;
        Pool destination(spec);
        destination.fill(2, false);
        Pool before = destination;
        const std::int32_t pairs[] = {5, 0, 5, 3, 0, 1};
        const CopyPagesArgs args{.source = source.view(),
                                 .destination = destination.view(),
                                 .d_qk = format.d_qk,
                                 .page_pairs = contiguous_view(pairs, DType::kInt32, {3, 2})};
        const Status status = copy_pages(args);
        ASSERT_TRUE(status.ok()) << status.message();
        std::vector<std::int64_t> written;
        for (int pair = 0; pair < 3; ++pair) {
            for (std::int64_t token = 0; token < 5; ++token) {
                written.push_back(pairs[2 * pair + 1] * 5 + token);
                const auto from = source.record_bytes(pairs[2 * pair], token);
                const auto to = destination.record_bytes(pairs[2 * pair + 1], token);
                for (std::size_t i = 0; i < from.size(); ++i) {
                    ASSERT_EQ(source.bytes()[from[i]], destination.bytes()[to[i]]) << name(format.format);
                }
            }
        }
        ASSERT_EQ(test::first_stray_write(before, destination, written), -1) << name(format.format);
    }
}

core::CacheView view_of(Pool& pool) {
    const TensorView cache = pool.view();
    const auto element = static_cast<std::int64_t>(size_bytes(cache.dtype));
    return {.format = pool.spec().format,
            .d_qk = static_cast<int>(pool.spec().d_qk),
            .num_pages = pool.spec().num_pages,
            .page_size = pool.spec().page_size,
            .page_bytes = cache.stride[0] * element,
            .record_bytes = cache.stride[1] * element,
            .scale = 1,
            .data = static_cast<std::uint8_t*>(cache.data)};
}

// More than kStreamBytes, so that the whole goes past the caches; page by page it does not.
TEST(CachePagesThreads, BitsDependNeitherOnTheirNumberNorOnTheSizeOfACall) {
    constexpr std::int64_t kPages = 110;
    const PoolSpec spec{.format = CacheFormat::kFp8_584, .d_qk = 512, .num_pages = kPages, .page_size = 69};
    ASSERT_GE(kPages * 69 * 584, backends::cpu::kStreamBytes);
    Pool source(spec);
    source.fill(7);
    PoolSpec plain = spec;
    plain.format = CacheFormat::kBFloat16;
    plain.record_gap_bytes = 16;
    std::vector<std::int64_t> pairs;
    for (std::int64_t page = 0; page < kPages; ++page) pairs.insert(pairs.end(), {(page * 7 + 3) % kPages, page});
    Pool copy_by_page(spec);
    Pool converted_by_page(plain);
    for (std::int64_t page = 0; page < kPages; ++page) {
        ASSERT_TRUE(backends::cpu::copy_pages({.source = view_of(source),
                                               .destination = view_of(copy_by_page),
                                               .pairs = {.data = &pairs[2 * page], .wide = true},
                                               .count = 1})
                        .ok());
        core::ConvertCall call{.source = view_of(source), .destination = view_of(converted_by_page)};
        for (core::CacheView* view : {&call.source, &call.destination}) {
            view->data = view->page(page);
            view->num_pages = 1;
        }
        ASSERT_TRUE(backends::cpu::convert(call).ok());
    }
    for (const int threads : {1, 2, 5}) {
        Pool copy(spec);
        Pool converted(plain);
        ASSERT_TRUE(backends::cpu::copy_pages({.source = view_of(source),
                                               .destination = view_of(copy),
                                               .pairs = {.data = pairs.data(), .wide = true},
                                               .count = kPages,
                                               .max_threads = threads})
                        .ok());
        ASSERT_TRUE(backends::cpu::convert(
                        {.source = view_of(source), .destination = view_of(converted), .max_threads = threads})
                        .ok());
        EXPECT_TRUE(copy.bytes() == copy_by_page.bytes()) << threads;
        EXPECT_TRUE(converted.bytes() == converted_by_page.bytes()) << threads;
    }
}

}  // namespace
}  // namespace flashmla::cpu_tests
