// gather on every code path against the oracle; places past 2^31 bytes.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>

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

class CacheGather : public testing::TestWithParam<std::string> {
protected:
    ForcedIsa forced_{GetParam().c_str()};
};

INSTANTIATE_TEST_SUITE_P(Matches, CacheGather, testing::ValuesIn(test::native_paths()),
                         [](const auto& info) { return info.param; });

// Equal to the bit, NaN equal to any NaN, and nothing written between the rows.
void expect_same(const Rows& got, const Rows& want, std::int64_t rows, std::int64_t width, const std::string& what) {
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t i = 0; i < width; ++i) {
            const float a = got.get(row, i);
            const float b = want.get(row, i);
            ASSERT_TRUE(core::float_bits(a) == core::float_bits(b) || (std::isnan(a) && std::isnan(b)))
                << what << " row " << row << " value " << i << ": " << a << " instead of " << b;
        }
    }
    for (std::int64_t row = 0; row + 1 < rows; ++row) ASSERT_TRUE(std::isnan(got.get(row, width))) << what;
}

TEST_P(CacheGather, SlotsOfEveryFormatToEveryDtype) {
    int variant = 0;
    for (const FormatCase& format : test::kFormatCases) {
        for (const std::int64_t page_size : {1, 2, 64, 69}) {
            for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
                ++variant;
                Pool pool({.format = format.format,
                           .d_qk = format.d_qk,
                           .page_size = page_size,
                           .page_gap_bytes = variant % 3 * 640,
                           .record_gap_bytes = format.format == CacheFormat::kFp8_584 ? 0 : variant % 2 * 16});
                pool.fill(variant, variant % 5 != 0);
                const std::vector<std::uint8_t> before = pool.bytes();
                reference::Random random(variant);
                std::vector<std::int64_t> slots;
                for (int i = 0; i < 30; ++i) slots.push_back(random.between(-2, pool.slots() - 1));
                const Ids ids(slots, variant % 2 == 0);
                Rows got(dtype, 30, format.d_qk);
                Rows want(dtype, 30, format.d_qk);
                GatherArgs args{.cache = pool.view(), .d_qk = format.d_qk, .slot_ids = ids.view(), .cache_scale = 1.7};
                args.out = want.view();
                reference::gather(args);
                args.out = got.view();
                const Status status = gather(args);
                ASSERT_TRUE(status.ok()) << status.message();
                expect_same(got, want, 30, format.d_qk, name(format.format));
                ASSERT_TRUE(pool.bytes() == before);
            }
        }
    }
}

TEST_P(CacheGather, RequestsByBlockTable) {
    for (const FormatCase& format : test::kFormatCases) {
        Pool pool({.format = format.format, .d_qk = format.d_qk, .num_pages = 40, .page_size = 16});
        pool.fill(3);
        const std::vector<std::int32_t> lengths = {0, 33, 16, 0, 1, 200, 0};
        std::vector<std::int32_t> cu = {0};
        std::vector<std::int32_t> table;
        reference::Random random(5);
        for (const std::int32_t length : lengths) {
            cu.push_back(cu.back() + length);
            for (int page = 0; page < 14; ++page) {
                const bool used = page * 16 < length;
                table.push_back(used ? static_cast<std::int32_t>(random.between(0, 39)) : -123456789);
            }
        }
        const std::int64_t rows = cu.back();
        Rows got(DType::kFloat32, rows, format.d_qk);
        Rows want(DType::kFloat32, rows, format.d_qk);
        GatherArgs args{.cache = pool.view(),
                        .d_qk = format.d_qk,
                        .block_table = contiguous_view(table.data(), DType::kInt32, {7, 14}),
                        .cu_seqlens = contiguous_view(cu.data(), DType::kInt32, {8})};
        args.out = want.view();
        reference::gather(args);
        args.out = got.view();
        const Status status = gather(args);
        ASSERT_TRUE(status.ok()) << status.message();
        expect_same(got, want, rows, format.d_qk, name(format.format));
    }
}

// A call of many megabytes puts rows together and writes them past the caches; small calls do neither.
TEST_P(CacheGather, OneLargeCallReadsWhatManySmallOnesDo) {
    int variant = 0;
    for (const FormatCase& format : test::kFormatCases) {
        if (format.d_qk < 500) continue;  // narrow ones would take many tokens
        ++variant;
        const DType dtype = variant % 3 == 0 ? DType::kFloat32 : variant % 3 == 1 ? DType::kBFloat16 : DType::kFloat16;
        const std::int64_t row_bytes = format.d_qk * static_cast<std::int64_t>(size_bytes(dtype));
        // A few rows more than the bytes ask for, so that the last ones are no whole group.
        const std::int64_t rows = backends::cpu::kStreamBytes / row_bytes / 4 * 4 + 7;
        Pool pool({.format = format.format, .d_qk = format.d_qk, .num_pages = 9, .page_size = 37});
        pool.fill(variant);
        std::vector<std::int64_t> slots;
        reference::Random random(variant);
        for (std::int64_t i = 0; i < rows; ++i) slots.push_back(random.between(-5, pool.slots() - 1));
        const Ids ids(slots, true);
        Rows got(dtype, rows, format.d_qk, variant % 2 == 0 ? 0 : 3);
        Rows want(dtype, rows, format.d_qk, variant % 2 == 0 ? 0 : 3);
        GatherArgs args{.cache = pool.view(), .d_qk = format.d_qk, .slot_ids = ids.view(), .out = got.view()};
        ASSERT_TRUE(gather(args).ok());
        constexpr std::int64_t kPart = 500;
        for (std::int64_t begin = 0; begin < rows; begin += kPart) {
            const std::int64_t count = std::min(kPart, rows - begin);
            args.slot_ids = ids.view();
            args.slot_ids.data = const_cast<std::int64_t*>(ids.values().data() + begin);
            args.out = want.view();
            args.out.data = static_cast<std::uint8_t*>(args.out.data) +
                            begin * args.out.stride[0] * static_cast<std::int64_t>(size_bytes(dtype));
            args.slot_ids.shape[0] = args.out.shape[0] = count;
            ASSERT_TRUE(gather(args).ok());
        }
        ASSERT_TRUE(got.bytes() == want.bytes()) << name(format.format) << " to " << name(dtype);
    }
}

TEST_P(CacheGather, OneLargeCallByBlockTable) {
    constexpr std::int64_t kRequests = 5;
    constexpr std::int64_t kPages = 16;
    Pool pool({.format = CacheFormat::kFp8_656, .num_pages = kPages, .page_size = 64});
    pool.fill(11);
    std::vector<std::int32_t> cu = {0};
    std::vector<std::int32_t> table;
    std::vector<std::int64_t> slots;
    reference::Random random(12);
    for (const std::int32_t length : {1000, 0, 1023, 1, 900}) {
        cu.push_back(cu.back() + length);
        for (int page = 0; page < kPages; ++page) table.push_back(static_cast<std::int32_t>(random.between(0, 15)));
        for (int token = 0; token < length; ++token) {
            slots.push_back(table[table.size() - kPages + static_cast<std::size_t>(token / 64)] * 64 + token % 64);
        }
    }
    const std::int64_t rows = cu.back();
    ASSERT_GE(rows * 576 * 4, backends::cpu::kStreamBytes);
    const Ids ids(slots, true);
    Rows got(DType::kFloat32, rows, 576);
    Rows want(DType::kFloat32, rows, 576);
    ASSERT_TRUE(gather({.cache = pool.view(),
                        .block_table = contiguous_view(table.data(), DType::kInt32, {kRequests, kPages}),
                        .cu_seqlens = contiguous_view(cu.data(), DType::kInt32, {kRequests + 1}),
                        .out = got.view()})
                    .ok());
    ASSERT_TRUE(gather({.cache = pool.view(), .slot_ids = ids.view(), .out = want.view()}).ok());
    EXPECT_TRUE(got.bytes() == want.bytes());
}

TEST_P(CacheGather, NothingToGather) {
    Pool pool({.page_size = 4});
    Rows out(DType::kBFloat16, 0, 576);
    const Ids none({}, false);
    EXPECT_TRUE(gather({.cache = pool.view(), .slot_ids = none.view(), .out = out.view()}).ok());
    const std::int32_t cu[] = {0};
    EXPECT_TRUE(gather({.cache = pool.view(),
                        .block_table = contiguous_view(nullptr, DType::kInt32, {0, 5}),
                        .cu_seqlens = contiguous_view(cu, DType::kInt32, {1}),
                        .out = out.view()})
                    .ok());
}

// A pool whose pages lie 1.5 GiB apart, of which only the touched pages get memory.
class SparsePool {
public:
    explicit SparsePool(std::int64_t pages) : bytes_(static_cast<std::size_t>(pages * kStride)) {
        data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    ~SparsePool() {
        if (ok()) munmap(data_, bytes_);
    }
    SparsePool(const SparsePool&) = delete;
    SparsePool& operator=(const SparsePool&) = delete;

    static constexpr std::int64_t kStride = std::int64_t{3} << 29;
    bool ok() const { return data_ != MAP_FAILED; }
    void* data() const { return data_; }

private:
    std::size_t bytes_;
    void* data_;
};

TEST(CacheOffsets, PagesPast2To31BytesAndElements) {
    constexpr std::int64_t kPages = 5;
    SparsePool pool(kPages);
    if (!pool.ok()) GTEST_SKIP() << "this machine reserves no 7.5 GB of addresses";
    for (const FormatCase& format : {test::kFormatCases[0], test::kFormatCases[3], test::kFormatCases[4]}) {
        const bool wide = format.format == CacheFormat::kBFloat16;
        const DType dtype = wide ? DType::kBFloat16 : DType::kUInt8;
        const std::int64_t record = cache_record_bytes(format.format, format.d_qk) / (wide ? 2 : 1);
        TensorView cache = contiguous_view(pool.data(), dtype, {kPages, 2, 1, record});
        cache.stride[0] = SparsePool::kStride / (wide ? 2 : 1);
        // Slots of the last page and of the first; a place computed in 32 bits would be another one.
        const Ids ids({9, 0}, true);
        Rows latent(DType::kFloat32, 2, format.d_qk - 64);
        Rows rope(DType::kFloat32, 2, 64);
        for (std::int64_t i = 0; i < format.d_qk - 64; ++i) {
            latent.set(0, i, 1.5f);
            latent.set(1, i, -3.0f);
        }
        for (std::int64_t i = 0; i < 64; ++i) {
            rope.set(0, i, 0.25f);
            rope.set(1, i, 8.0f);
        }
        ASSERT_TRUE(
            append({.latent = latent.view(), .rope = rope.view(), .cache = cache, .slot_ids = ids.view()}).ok());
        Rows out(DType::kFloat32, 2, format.d_qk);
        ASSERT_TRUE(gather({.cache = cache, .d_qk = format.d_qk, .slot_ids = ids.view(), .out = out.view()}).ok());
        EXPECT_EQ(out.get(0, 5), 1.5f);
        EXPECT_EQ(out.get(1, 5), -3.0f);
        EXPECT_EQ(out.get(0, format.d_qk - 1), 0.25f);
        EXPECT_EQ(out.get(1, format.d_qk - 1), 8.0f);
        const reference::CacheTokens tokens(cache, format.d_qk);
        EXPECT_EQ(tokens.read(4, 1)[0], 1.5);
        const std::int64_t pair[] = {4, 2};
        ASSERT_TRUE(copy_pages({.source = cache,
                                .destination = cache,
                                .d_qk = format.d_qk,
                                .page_pairs = contiguous_view(pair, DType::kInt64, {1, 2})})
                        .ok());
        EXPECT_EQ(tokens.read(2, 1)[0], 1.5);
    }
}

}  // namespace
}  // namespace flashmla::cpu_tests
