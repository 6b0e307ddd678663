// Bad arguments of the cache operations: one error that names the argument, what it got and what it accepts; nothing is
// written.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "support/cache_case.hpp"

namespace flashmla::test {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 61;
constexpr Device kGpu{DeviceType::kCuda, 0};

// Legal arguments of every operation over two small pools.
struct CacheCall {
    Pool cache{{.format = CacheFormat::kFp8_656, .num_pages = 3, .page_size = 4, .page_gap_bytes = 16}};
    Pool other{{.format = CacheFormat::kFp8_656, .num_pages = 3, .page_size = 4}};
    Rows latent{DType::kBFloat16, 3, 512};
    Rows rope{DType::kBFloat16, 3, 64};
    Rows angles{DType::kFloat32, 10, 64};
    Rows out{DType::kFloat32, 3, 576};
    Ids slots{{11, -1, 2}, false};
    Ids positions{{9, -5, 0}, true};
    std::vector<std::int32_t> table = {2, 99};
    std::vector<std::int32_t> cu = {0, 3};
    std::vector<std::int32_t> pairs = {0, 1, 2, 2};
    AppendArgs append;
    GatherArgs gather;
    GatherArgs by_table;
    CopyPagesArgs copy;
    ConvertArgs convert;

    CacheCall() {
        append = {.latent = latent.view(), .rope = rope.view(), .cache = cache.view(), .slot_ids = slots.view()};
        append.positions = positions.view();
        append.cos_sin = angles.view();
        gather = {.cache = cache.view(), .slot_ids = slots.view(), .out = out.view()};
        by_table = {.cache = cache.view(),
                    .block_table = contiguous_view(table.data(), DType::kInt32, {1, 2}),
                    .cu_seqlens = contiguous_view(cu.data(), DType::kInt32, {2}),
                    .out = out.view()};
        copy = {.source = cache.view(),
                .destination = other.view(),
                .page_pairs = contiguous_view(pairs.data(), DType::kInt32, {2, 2})};
        convert = {.source = cache.view(), .destination = other.view()};
    }
};

using Call = Status (*)(const CacheCall&);
Status run_append(const CacheCall& c) { return append(c.append); }
Status run_gather(const CacheCall& c) { return gather(c.gather); }
Status run_by_table(const CacheCall& c) { return gather(c.by_table); }
Status run_copy(const CacheCall& c) { return copy_pages(c.copy); }
Status run_convert(const CacheCall& c) { return convert(c.convert); }

struct BadCall {
    const char* name;
    Call run;
    std::function<void(CacheCall&)> spoil;
    std::vector<const char*> message;
    StatusCode code = StatusCode::kInvalidArgument;
};

void PrintTo(const BadCall& bad, std::ostream* stream) { *stream << bad.name; }

const BadCall kBadCalls[] = {
    {"latent_rank", run_append, [](CacheCall& c) { c.append.latent.rank = 3; }, {"latent: got rank 3", "(n, d_qk"}},
    {"rope_rank", run_append, [](CacheCall& c) { c.append.rope.rank = 1; }, {"rope: got rank 1", "(n, d_rope)"}},
    {"slots_rank", run_append, [](CacheCall& c) { c.append.slot_ids.rank = 2; }, {"slot_ids: got rank 2", "(n,)"}},
    {"cache_rank", run_append, [](CacheCall& c) { c.append.cache.rank = 3; }, {"cache: got rank 3", "page_size, 1"}},
    {"cache_heads",
     run_append,
     [](CacheCall& c) { c.append.cache.shape[2] = 2; },
     {"cache: got shape (3, 4, 2, 656)", "h_kv = 1"}},
    {"page_size", run_append, [](CacheCall& c) { c.append.cache.shape[1] = 0; }, {"cache: got page_size 0"}},
    {"record",
     run_append,
     [](CacheCall& c) { c.append.cache.shape[3] = 584; },
     {"cache: got last axis 584 of uint8 with d_qk 576", "656 (d_qk 576)"}},
    {"widths",
     run_append,
     [](CacheCall& c) {
         c.append.latent.shape[1] = 511;
         c.append.rope.shape[1] = 65;
     },
     {"latent, rope: got widths 511 and 65, wanted 512 and 64", "fp8_656"}},
    {"wild_width",
     run_append,
     [](CacheCall& c) { c.append.latent.shape[1] = std::numeric_limits<std::int64_t>::max(); },
     {"latent, rope: got widths 9223372036854775807", "4096"}},
    {"negative_width", run_append, [](CacheCall& c) { c.append.rope.shape[1] = -64; }, {"latent, rope: got widths"}},
    {"no_rope",
     run_append,
     [](CacheCall& c) {
         c.append.rope = {};
         c.append.positions = {};
         c.append.cos_sin = {};
         c.append.latent.shape[1] = 576;
     },
     {"latent, rope: got widths 576 and 0, wanted 512 and 64"}},
    {"rotary_without_rope", run_append, [](CacheCall& c) { c.append.rope = {}; }, {"without rope"}},
    {"positions_alone", run_append, [](CacheCall& c) { c.append.cos_sin = {}; }, {"got only positions"}},
    {"cos_sin_alone", run_append, [](CacheCall& c) { c.append.positions = {}; }, {"got only cos_sin"}},
    {"cos_sin_width",
     run_append,
     [](CacheCall& c) { c.append.cos_sin.shape[1] = 32; },
     {"cos_sin: got shape (10, 32)", "d_rope = 64"}},
    {"cos_sin_dtype",
     run_append,
     [](CacheCall& c) { c.append.cos_sin.dtype = DType::kBFloat16; },
     {"cos_sin: got dtype bfloat16, wanted float32"}},
    {"rotary_style",
     run_append,
     [](CacheCall& c) { c.append.rotary_style = static_cast<RotaryStyle>(7); },
     {"rotary_style: got 7"}},
    {"rope_n", run_append, [](CacheCall& c) { c.append.rope.shape[0] = 2; }, {"rope: got shape (2, 64)", "n = 3"}},
    {"slots_n", run_append, [](CacheCall& c) { c.append.slot_ids.shape[0] = 4; }, {"slot_ids: got shape (4,)"}},
    {"positions_n", run_append, [](CacheCall& c) { c.append.positions.shape[0] = 2; }, {"positions: got shape (2,)"}},
    {"latent_dtype",
     run_append,
     [](CacheCall& c) { c.append.latent.dtype = DType::kFloat8E4m3; },
     {"latent: got dtype float8_e4m3fn", "bfloat16, float16 or float32"}},
    {"rope_dtype",
     run_append,
     [](CacheCall& c) { c.append.rope.dtype = DType::kFloat16; },
     {"rope: got dtype float16, wanted bfloat16, latent's dtype"}},
    {"slots_dtype",
     run_append,
     [](CacheCall& c) { c.append.slot_ids.dtype = DType::kUInt8; },
     {"slot_ids: got dtype uint8, wanted int32 or int64"}},
    {"latent_stride",
     run_append,
     [](CacheCall& c) { c.append.latent.stride[1] = 2; },
     {"latent: got strides", "last axis with stride 1"}},
    {"latent_null", run_append, [](CacheCall& c) { c.append.latent.data = nullptr; }, {"latent: got a null pointer"}},
    {"cache_null", run_append, [](CacheCall& c) { c.append.cache.data = nullptr; }, {"cache: got a null pointer"}},
    {"cache_overlap",
     run_append,
     [](CacheCall& c) { c.append.cache.stride[1] = 600; },
     {"cache: got shape", "a place of its own"}},
    {"cache_huge", run_append, [](CacheCall& c) { c.append.cache.shape[0] = kHuge; }, {"cache: got", "63 bits"}},
    {"cache_stride_huge",
     run_append,
     [](CacheCall& c) { c.append.cache.stride[0] = 2 * kHuge; },
     {"cache: got", "63 bits"}},
    {"slots_device",
     run_append,
     [](CacheCall& c) { c.append.slot_ids.device = kGpu; },
     {"slot_ids: got device cuda:0, wanted cpu, where cache is"}},
    {"slot_past_the_cache",
     run_append,
     [](CacheCall& c) { c.append.cache.shape[0] = 2; },
     {"slot_ids: got 11 at 0, wanted less than 8 = num_pages * page_size"}},
    {"position_past_the_table",
     run_append,
     [](CacheCall& c) { c.append.cos_sin.shape[0] = 9; },
     {"positions: got 9 at 0, wanted 0 to 8"}},
    {"append_on_cuda",
     run_append,
     [](CacheCall& c) {
         for (TensorView* view : {&c.append.latent, &c.append.rope, &c.append.cache, &c.append.slot_ids,
                                  &c.append.positions, &c.append.cos_sin}) {
             view->device = kGpu;
         }
     },
     {"append: no kernel for tensors on cuda:0", "cpu_append"},
     StatusCode::kUnsupported},

    {"gather_nothing", run_gather, [](CacheCall& c) { c.gather.slot_ids = {}; }, {"got none, wanted slot_ids alone"}},
    {"gather_both",
     run_gather,
     [](CacheCall& c) { c.gather.block_table = c.by_table.block_table; },
     {"got slot_ids, block_table, wanted"}},
    {"table_without_lengths", run_by_table, [](CacheCall& c) { c.by_table.cu_seqlens = {}; }, {"got block_table"}},
    {"gather_d_qk",
     run_gather,
     [](CacheCall& c) { c.gather.d_qk = 512; },
     {"cache: got last axis 656 of uint8 with d_qk 512"}},
    {"gather_wild_d_qk", run_gather, [](CacheCall& c) { c.gather.d_qk = kHuge; }, {"cache: got records of d_qk"}},
    {"out_width", run_gather, [](CacheCall& c) { c.gather.out.shape[1] = 512; }, {"out: got shape (3, 512)", "576"}},
    {"out_n", run_gather, [](CacheCall& c) { c.gather.out.shape[0] = 2; }, {"slot_ids: got shape (3,)", "n = 2"}},
    {"out_dtype", run_gather, [](CacheCall& c) { c.gather.out.dtype = DType::kInt32; }, {"out: got dtype int32"}},
    {"out_overlap", run_gather, [](CacheCall& c) { c.gather.out.stride[0] = 0; }, {"out: got", "a place of its own"}},
    {"gather_slot_past", run_gather, [](CacheCall& c) { c.gather.cache.shape[0] = 1; }, {"slot_ids: got 11 at 0"}},
    {"table_dtype",
     run_by_table,
     [](CacheCall& c) { c.by_table.block_table.dtype = DType::kInt64; },
     {"block_table: got dtype int64, wanted int32"}},
    {"cu_n", run_by_table, [](CacheCall& c) { c.by_table.cu_seqlens.shape[0] = 3; }, {"cu_seqlens: got shape (3,)"}},
    {"cu_start", run_by_table, [](CacheCall& c) { c.cu[0] = 1; }, {"cu_seqlens: got 1 to 3, wanted 0 to 3"}},
    {"cu_end", run_by_table, [](CacheCall& c) { c.cu[1] = 4; }, {"cu_seqlens: got 0 to 4, wanted 0 to 3"}},
    {"page_wild", run_by_table, [](CacheCall& c) { c.table[0] = 3; }, {"block_table: got page 3 at (0, 0)", "0 to 2"}},
    {"page_negative", run_by_table, [](CacheCall& c) { c.table[0] = -1; }, {"block_table: got page -1 at (0, 0)"}},
    {"cu_past_the_table",
     run_by_table,
     [](CacheCall& c) { c.by_table.block_table.shape[1] = 0; },
     {"cu_seqlens: got a difference of 3 for request 0", "0 pages of 4"}},

    {"copy_formats",
     run_copy,
     [](CacheCall& c) { c.copy.destination.shape[3] = 576; },
     {"destination: got format fp8_flat, wanted fp8_656"}},
    {"copy_page_size",
     run_copy,
     [](CacheCall& c) { c.copy.destination.shape[1] = 2; },
     {"destination: got page_size 2, wanted 4, source's"}},
    {"pairs_shape", run_copy, [](CacheCall& c) { c.copy.page_pairs.shape[1] = 3; }, {"page_pairs: got shape (2, 3)"}},
    {"pair_source", run_copy, [](CacheCall& c) { c.pairs[2] = 3; }, {"page_pairs: got source page 3 at 1"}},
    {"pair_destination", run_copy, [](CacheCall& c) { c.pairs[3] = -1; }, {"got destination page -1 at 1"}},
    {"pair_twice", run_copy, [](CacheCall& c) { c.pairs[3] = 1; }, {"got destination page 1 twice"}},
    {"page_in_both_roles",
     run_copy,
     [](CacheCall& c) { c.copy.destination = c.copy.source; },
     {"page_pairs: got page 2 of one cache both"}},
    {"copy_on_cuda",
     run_copy,
     [](CacheCall& c) { c.copy.source.device = c.copy.destination.device = c.copy.page_pairs.device = kGpu; },
     {"copy_pages: no kernel for tensors on cuda:0"},
     StatusCode::kUnsupported},

    {"convert_pages",
     run_convert,
     [](CacheCall& c) { c.convert.destination.shape[0] = 2; },
     {"destination: got 2 pages, wanted 3, source's"}},
    {"convert_in_place",
     run_convert,
     [](CacheCall& c) { c.convert.destination = c.convert.source; },
     {"destination: got the memory of source"}},
    {"convert_scale",
     run_convert,
     [](CacheCall& c) {
         c.convert.destination.shape[3] = 576;
         c.convert.destination_scale = 0;
     },
     {"destination_scale: got 0.0", "positive"}},
    {"convert_scale_nan",
     run_convert,
     [](CacheCall& c) {
         c.convert.destination.shape[3] = 576;
         c.convert.destination_scale = std::numeric_limits<double>::quiet_NaN();
     },
     {"destination_scale: got nan"}},
    {"convert_scale_huge",
     run_convert,
     [](CacheCall& c) {
         c.convert.destination.shape[3] = 576;
         c.convert.destination_scale = 1e300;
     },
     {"destination_scale: got 1"}},
};

class CacheArguments : public testing::TestWithParam<BadCall> {};

INSTANTIATE_TEST_SUITE_P(Refused, CacheArguments, testing::ValuesIn(kBadCalls),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(CacheArguments, NamesTheArgumentAndWritesNothing) {
    CacheCall call;
    call.cache.fill(1);
    GetParam().spoil(call);
    const std::vector<std::uint8_t> cache = call.cache.bytes();
    const std::vector<std::uint8_t> other = call.other.bytes();
    const std::vector<std::uint8_t> out = call.out.bytes();
    const Status status = GetParam().run(call);
    ASSERT_EQ(status.code(), GetParam().code) << status.message();
    for (const char* part : GetParam().message) {
        EXPECT_NE(status.message().find(part), std::string::npos) << status.message() << "\nlacks: " << part;
    }
    EXPECT_TRUE(call.cache.bytes() == cache);
    EXPECT_TRUE(call.other.bytes() == other);
    EXPECT_TRUE(call.out.bytes() == out);
}

TEST(CacheArgumentsAccepted, TheUnspoiledCalls) {
    CacheCall call;
    for (const Call run : {run_append, run_gather, run_by_table, run_copy, run_convert}) {
        const Status status = run(call);
        EXPECT_TRUE(status.ok()) << status.message();
    }
}

TEST(CacheArgumentsAccepted, InnerStridesOf584MeanNothing) {
    Pool pool({.format = CacheFormat::kFp8_584, .d_qk = 512, .num_pages = 2, .page_size = 3, .page_gap_bytes = 552});
    Rows latent(DType::kFloat32, 1, 448);
    Rows rope(DType::kFloat32, 1, 64);
    latent.fill(1);
    rope.fill(2);
    const Ids slot({5}, false);
    AppendArgs args{.latent = latent.view(), .rope = rope.view(), .cache = pool.view(), .slot_ids = slot.view()};
    ASSERT_TRUE(append(args).ok());
    const std::vector<std::uint8_t> bytes = pool.bytes();
    args.cache.stride = {args.cache.stride[0], 1, -7, 123456};
    ASSERT_TRUE(append(args).ok());
    EXPECT_TRUE(pool.bytes() == bytes);
    args.cache.stride[0] = 3 * 584 - 1;  // but pages may not overlap
    EXPECT_FALSE(append(args).ok());
}

TEST(CacheArgumentsAccepted, OtherFormatsDoNotLookAtTheScaleOfTheFlatOne) {
    CacheCall call;
    call.append.cache_scale = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(append(call.append).ok());
}

TEST(CacheArgumentsAccepted, EmptyCalls) {
    CacheCall call;
    call.append.latent.shape[0] = call.append.rope.shape[0] = 0;
    call.append.slot_ids.shape[0] = call.append.positions.shape[0] = 0;
    call.append.latent.data = call.append.rope.data = call.append.slot_ids.data = nullptr;
    call.copy.page_pairs.shape[0] = 0;
    call.convert.source.shape[0] = call.convert.destination.shape[0] = 0;
    for (const Call run : {run_append, run_copy, run_convert}) {
        const Status status = run(call);
        EXPECT_TRUE(status.ok()) << status.message();
    }
}

}  // namespace
}  // namespace flashmla::test
