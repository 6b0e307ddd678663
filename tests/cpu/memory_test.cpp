// What every operation takes from the heap beyond its inputs and outputs: below 64 MB, and no more for long calls than
// for short ones. Inputs are zeros; what a call computes is the other tests' business.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "cpu/allocations.hpp"
#include "cpu/paths.hpp"
#include "flashmla/absorb.hpp"
#include "flashmla/kv_cache.hpp"
#include "flashmla/merge.hpp"
#include "flashmla/prefill.hpp"

namespace flashmla::cpu_tests {
namespace {

constexpr std::int64_t kLimit = 64'000'000;
constexpr std::int64_t kPageSize = 64;

// Zeroed tensors of one call; calloc, so that what nobody touches costs nothing.
class Arena {
public:
    TensorView tensor(DType dtype, std::initializer_list<std::int64_t> shape) {
        TensorView view = contiguous_view(nullptr, dtype, shape);
        std::size_t bytes = size_bytes(dtype);
        for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
        memory_.emplace_back(std::calloc(bytes, 1), &std::free);
        view.data = memory_.back().get();
        return view;
    }
    // 0, step, 2 step, ... modulo `modulus`.
    TensorView ids(std::initializer_list<std::int64_t> shape, std::int64_t modulus, std::int32_t step = 1) {
        TensorView view = tensor(DType::kInt32, shape);
        std::int64_t count = 1;
        for (const std::int64_t extent : shape) count *= extent;
        for (std::int64_t i = 0; i < count; ++i) {
            static_cast<std::int32_t*>(view.data)[i] = static_cast<std::int32_t>(i * step % modulus);
        }
        return view;
    }
    TensorView pool(CacheFormat format, std::int64_t pages) {
        const std::int64_t d_qk = format == CacheFormat::kFp8_584 ? 512 : 576;
        const DType dtype = format == CacheFormat::kBFloat16  ? DType::kBFloat16
                            : format == CacheFormat::kFloat16 ? DType::kFloat16
                                                              : DType::kFloat8E4m3;
        const auto element = static_cast<std::int64_t>(size_bytes(dtype));
        const std::int64_t page = cache_page_bytes(format, d_qk, kPageSize) / element;
        TensorView view = tensor(dtype, {pages, page});
        const std::int64_t record = cache_record_bytes(format, d_qk) / element;
        view = contiguous_view(view.data, dtype, {pages, kPageSize, 1, record});
        view.stride[0] = page;
        return view;
    }

private:
    std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
};

using Call = std::function<Status()>;

// Of `n` tokens, which lie on four pages.
Call decode_call(Arena& arena, CacheFormat format, std::int64_t n, bool sparse) {
    DecodeArgs args;
    const TensorView cache = arena.pool(format, 4);
    const DType dtype = format == CacheFormat::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
    args.q = arena.tensor(dtype, {1, 1, 1, format == CacheFormat::kFp8_584 ? 512 : 576});
    args.k_cache = cache;
    args.out = arena.tensor(dtype, {1, 1, 1, 512});
    args.lse = arena.tensor(DType::kFloat32, {1, 1, 1});
    if (sparse) {
        args.indices = arena.ids({1, 1, n}, 4 * kPageSize, 7);
    } else {
        args.block_table = arena.ids({1, n / kPageSize}, 4);
        args.cache_seqlens = arena.ids({1}, 1);
        static_cast<std::int32_t*>(args.cache_seqlens.data)[0] = static_cast<std::int32_t>(n);
    }
    return [args] { return decode(args); };
}

Call sparse_prefill_call(Arena& arena, std::int64_t n) {
    SparsePrefillArgs args{.q = arena.tensor(DType::kBFloat16, {2, 1, 576}),
                           .kv = arena.tensor(DType::kBFloat16, {n, 1, 576}),
                           .indices = arena.ids({2, 1, n}, n, 7),
                           .out = arena.tensor(DType::kBFloat16, {2, 1, 512}),
                           .max_logits = arena.tensor(DType::kFloat32, {2, 1}),
                           .lse = arena.tensor(DType::kFloat32, {2, 1})};
    return [args] { return sparse_prefill(args); };
}

// n keys, and as many query tokens up to 512.
DensePrefillArgs dense_args(Arena& arena, std::int64_t n) {
    const std::int64_t queries = std::min<std::int64_t>(n, 512);
    const auto lengths = [&arena](std::int64_t length) {
        return arena.ids({2}, length + 1, static_cast<std::int32_t>(length));
    };
    return {.q = arena.tensor(DType::kBFloat16, {queries, 1, 192}),
            .k = arena.tensor(DType::kBFloat16, {n, 1, 192}),
            .v = arena.tensor(DType::kBFloat16, {n, 1, 128}),
            .cu_seqlens_q = lengths(queries),
            .cu_seqlens_kv = lengths(n),
            .out = arena.tensor(DType::kBFloat16, {queries, 1, 128}),
            .lse = arena.tensor(DType::kFloat32, {queries, 1}),
            .max_seqlen_q = queries,
            .max_seqlen_kv = n};
}

Call dense_prefill_call(Arena& arena, std::int64_t n) {
    return [args = dense_args(arena, n)] { return dense_prefill(args); };
}

Call backward_call(Arena& arena, std::int64_t n) {
    DensePrefillBackwardArgs args{.forward = dense_args(arena, n)};
    const std::int64_t queries = args.forward.max_seqlen_q;
    args.dout = arena.tensor(DType::kBFloat16, {queries, 1, 128});
    args.dq = arena.tensor(DType::kBFloat16, {queries, 1, 192});
    args.dk = arena.tensor(DType::kBFloat16, {n, 1, 192});
    args.dv = arena.tensor(DType::kBFloat16, {n, 1, 128});
    return [args] { return dense_prefill_backward(args); };
}

Call append_call(Arena& arena, std::int64_t n) {
    AppendArgs args{.latent = arena.tensor(DType::kBFloat16, {n, 512}),
                    .rope = arena.tensor(DType::kBFloat16, {n, 64}),
                    .cache = arena.pool(CacheFormat::kFp8_656, 4),
                    .slot_ids = arena.ids({n}, 4 * kPageSize, 7)};
    return [args] { return append(args); };
}

Call gather_call(Arena& arena, std::int64_t n) {
    GatherArgs args{.cache = arena.pool(CacheFormat::kFp8_656, 4),
                    .slot_ids = arena.ids({n}, 4 * kPageSize, 7),
                    .out = arena.tensor(DType::kBFloat16, {n, 576})};
    return [args] { return gather(args); };
}

// Pages of one short token.
Call copy_pages_call(Arena& arena, std::int64_t n) {
    CopyPagesArgs args{.source = arena.tensor(DType::kBFloat16, {n, 1, 1, 16}),
                       .destination = arena.tensor(DType::kBFloat16, {n, 1, 1, 16}),
                       .d_qk = 16,
                       .page_pairs = arena.tensor(DType::kInt32, {n, 2})};
    for (std::int64_t i = 0; i < 2 * n; ++i) {
        static_cast<std::int32_t*>(args.page_pairs.data)[i] = static_cast<std::int32_t>(i / 2);
    }
    return [args] { return copy_pages(args); };
}

Call convert_call(Arena& arena, std::int64_t n) {
    ConvertArgs args{.source = arena.pool(CacheFormat::kBFloat16, n / kPageSize),
                     .destination = arena.pool(CacheFormat::kFp8_656, n / kPageSize)};
    return [args] { return convert(args); };
}

Call merge_call(Arena& arena, std::int64_t n) {
    struct Parts {
        TensorView outs[2], lses[2];
    };
    const auto parts = std::make_shared<Parts>();
    for (int i = 0; i < 2; ++i) {
        parts->outs[i] = arena.tensor(DType::kBFloat16, {n, 1, 512});
        parts->lses[i] = arena.tensor(DType::kFloat32, {n, 1});
    }
    const TensorView out = arena.tensor(DType::kBFloat16, {n, 1, 512});
    const TensorView lse = arena.tensor(DType::kFloat32, {n, 1});
    return [=] { return merge({.outs = parts->outs, .lses = parts->lses, .out = out, .lse = lse}); };
}

Call absorb_call(Arena& arena, std::int64_t n) {
    AbsorbArgs args{.x = arena.tensor(DType::kBFloat16, {n, 16, 128}),
                    .weight = arena.tensor(DType::kBFloat16, {16, 128, 512}),
                    .out = arena.tensor(DType::kBFloat16, {n, 16, 512})};
    return [args] { return absorb_query(args); };
}

struct MemoryCase {
    std::string name;
    std::function<Call(Arena&, std::int64_t n)> make;
    std::int64_t short_length, long_length;
    // Allowed growth: what a set with a bit for each page of the destination takes.
    std::int64_t bytes_per_1024 = 0;
};

void PrintTo(const MemoryCase& c, std::ostream* stream) { *stream << c.name; }

class Memory : public testing::TestWithParam<MemoryCase> {};

std::int64_t measured(const MemoryCase& c, std::int64_t n) {
    Arena arena;
    const Call call = c.make(arena, n);
    const PeakMemory peak;
    const Status status = call();
    const std::int64_t bytes = peak.bytes();
    EXPECT_TRUE(status.ok()) << status.message();
    return bytes;
}

TEST_P(Memory, StaysBelow64MegabytesAndDoesNotGrow) {
    const MemoryCase& c = GetParam();
    const std::int64_t few = measured(c, c.short_length);
    const std::int64_t many = measured(c, c.long_length);
    RecordProperty("bytes_" + std::to_string(c.long_length), std::to_string(many));
    EXPECT_LT(many, kLimit);
    // A thread more or less takes a few bytes.
    EXPECT_LE(many, few + c.bytes_per_1024 * (c.long_length - c.short_length) / 1024 + 16'384);
}

std::vector<MemoryCase> memory_cases() {
    constexpr std::int64_t k = 1024;
    const std::int64_t slower = kSanitized ? 16 : 1;
    std::vector<MemoryCase> cases;
    for (const CacheFormat format : kAllCacheFormats) {
        for (const bool sparse : {false, true}) {
            cases.push_back({std::string(sparse ? "sparse_decode_" : "decode_") + name(format),
                             [=](Arena& arena, std::int64_t n) { return decode_call(arena, format, n, sparse); }, 8 * k,
                             256 * k / slower});
        }
    }
    const std::vector<MemoryCase> others = {
        {"sparse_prefill", sparse_prefill_call, 4 * k, 64 * k / slower},
        {"dense_prefill", dense_prefill_call, k, 16 * k / slower},
        {"dense_prefill_backward", backward_call, k, 8 * k / slower},
        {"append", append_call, 4 * k, 64 * k / slower},
        {"gather", gather_call, 4 * k, 64 * k / slower},
        {"copy_pages", copy_pages_call, 4 * k, 256 * k, 1024 / 8},
        {"convert", convert_call, 4 * k, 64 * k / slower},
        {"merge", merge_call, 4 * k, 64 * k / slower},
        {"absorb", absorb_call, 256, 2 * k},
    };
    cases.insert(cases.end(), others.begin(), others.end());
    return cases;
}

INSTANTIATE_TEST_SUITE_P(EveryOperation, Memory, testing::ValuesIn(memory_cases()),
                         [](const testing::TestParamInfo<MemoryCase>& info) { return info.param.name; });

}  // namespace
}  // namespace flashmla::cpu_tests
