// A request's bits depend on the request alone: not on threads, not on its batch mates, not on its place among them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "core/float_formats.hpp"
#include "cpu/paths.hpp"
#include "reference/tensor_access.hpp"

namespace flashmla::cpu_tests {
namespace {

constexpr std::int64_t kTokens = 2, kHeads = 20, kDepth = 320, kValueDepth = 256, kPage = 16;

// A pool that every batch shares: request i of any batch is described by its length and its pages.
struct Request {
    std::int32_t length = 0;
    std::vector<std::uint16_t> q;
    std::vector<std::int32_t> pages;
};

struct Outputs {
    std::vector<std::uint16_t> out;
    std::vector<float> lse;
    friend bool operator==(const Outputs& a, const Outputs& b) {
        return a.out == b.out && a.lse.size() == b.lse.size() &&
               std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)) == 0;
    }
};

class SameBits : public testing::TestWithParam<CpuPath> {
protected:
    static constexpr int kPoolPages = 600;

    SameBits() : pool_(kPoolPages * kPage * kDepth) {
        std::normal_distribution<float> normal;
        for (std::uint16_t& code : pool_) code = core::float_to_bf16(normal(random_));
    }

    Request make_request(std::int32_t length) {
        Request request{length, std::vector<std::uint16_t>(kTokens * kHeads * kDepth), {}};
        std::normal_distribution<float> normal;
        for (std::uint16_t& code : request.q) code = core::float_to_bf16(normal(random_));
        for (std::int64_t i = 0; i < (length + kPage - 1) / kPage; ++i) {
            request.pages.push_back(static_cast<std::int32_t>(random_() % kPoolPages));
        }
        return request;
    }

    // A batch with mates of other lengths, and `probe` at `place`.
    std::vector<Request> batch_of(int size, int place, const Request& probe) {
        std::vector<Request> batch;
        for (int i = 0; i < size; ++i) {
            batch.push_back(i == place ? probe
                                       : make_request(static_cast<std::int32_t>(random_() % (i % 9 == 0 ? 3000 : 90))));
        }
        return batch;
    }

    // One result a request.
    std::vector<Outputs> decode_batch(const std::vector<Request>& batch, int threads) {
        const auto b = static_cast<std::int64_t>(batch.size());
        std::size_t width = 1;
        for (const Request& request : batch) width = std::max(width, request.pages.size());
        std::vector<std::uint16_t> q, out(b * kTokens * kHeads * kValueDepth);
        std::vector<std::int32_t> table, lengths;
        std::vector<float> lse(b * kHeads * kTokens);
        for (const Request& request : batch) {
            q.insert(q.end(), request.q.begin(), request.q.end());
            lengths.push_back(request.length);
            table.insert(table.end(), request.pages.begin(), request.pages.end());
            table.resize(lengths.size() * width, -1);
        }
        DecodeArgs args;
        args.q = contiguous_view(q.data(), DType::kBFloat16, {b, kTokens, kHeads, kDepth});
        args.k_cache = contiguous_view(pool_.data(), DType::kBFloat16, {kPoolPages, kPage, 1, kDepth});
        args.block_table = contiguous_view(table.data(), DType::kInt32, {b, static_cast<std::int64_t>(width)});
        args.cache_seqlens = contiguous_view(lengths.data(), DType::kInt32, {b});
        args.out = contiguous_view(out.data(), DType::kBFloat16, {b, kTokens, kHeads, kValueDepth});
        args.lse = contiguous_view(lse.data(), DType::kFloat32, {b, kHeads, kTokens});
        args.causal = true;
        const Status status = run(GetParam(), args, threads);
        EXPECT_TRUE(status.ok()) << status.message();
        std::vector<Outputs> results(batch.size());
        for (std::size_t i = 0; i < batch.size(); ++i) {
            const auto out_at = out.begin() + static_cast<std::ptrdiff_t>(i * kTokens * kHeads * kValueDepth);
            const auto lse_at = lse.begin() + static_cast<std::ptrdiff_t>(i * kTokens * kHeads);
            results[i] = {{out_at, out_at + kTokens * kHeads * kValueDepth}, {lse_at, lse_at + kTokens * kHeads}};
        }
        return results;
    }

    std::mt19937 random_{20240607};
    std::vector<std::uint16_t> pool_;
};

TEST_P(SameBits, WithAnyNumberOfThreads) {
    std::vector<Request> batch;
    for (std::int32_t length : {9000, 0, 5000, 2049, 64, 2048, 1, 4097}) batch.push_back(make_request(length));
    const std::vector<Outputs> one = decode_batch(batch, 1);
    for (int threads : {1, 2, 3, 7, 64}) {
        for (int repeat = 0; repeat < (kSanitized ? 1 : 3); ++repeat)
            EXPECT_TRUE(decode_batch(batch, threads) == one) << threads << " threads";
    }
}

TEST_P(SameBits, WithAnyBatchMates) {
    for (std::int32_t length : {5, 1000, 6200}) {
        const Request probe = make_request(length);
        const Outputs alone = decode_batch({probe}, 2)[0];
        for (int size : {2, 8, 64, 321}) {
            if (kSanitized && size > 64) continue;
            const int place = static_cast<int>(random_() % size);
            const std::vector<Outputs> results = decode_batch(batch_of(size, place, probe), 2);
            EXPECT_TRUE(results[place] == alone) << "length " << length << " among " << size << ", at " << place;
        }
    }
}

TEST_P(SameBits, InAnyOrder) {
    std::vector<Request> batch = batch_of(64, 0, make_request(2500));
    const std::vector<Outputs> straight = decode_batch(batch, 2);
    std::vector<std::size_t> order(batch.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<Request> shuffled;
    for (std::size_t i : order) shuffled.push_back(batch[i]);
    const std::vector<Outputs> results = decode_batch(shuffled, 3);
    for (std::size_t i = 0; i < order.size(); ++i)
        EXPECT_TRUE(results[i] == straight[order[i]]) << "request " << order[i];
}

INSTANTIATE_TEST_SUITE_P(Paths, SameBits, testing::ValuesIn(cpu_paths()),
                         [](const testing::TestParamInfo<CpuPath>& info) { return info.param.name; });

}  // namespace
}  // namespace flashmla::cpu_tests
