#include "support/sparse_families.hpp"

#include <string>
#include <utility>

#include "reference/random.hpp"

namespace flashmla::testing_support {
namespace {

using reference::DecodeSpec;
using reference::KeyOrder;
using reference::ListLengths;
using reference::PageOrder;

std::string text(std::int64_t value) { return std::to_string(value); }

class Builder {
public:
    explicit Builder(std::uint64_t first_seed) : seed_(first_seed) {}

    // The query dtypes take turns.
    DecodeSpec& add(std::string name, CacheFormat format, std::vector<std::int32_t> lengths) {
        DecodeSpec& spec = family_.emplace_back();
        spec.name = std::move(name) + "_" + flashmla::name(format);
        spec.seed = seed_++;
        spec.lengths = std::move(lengths);
        spec.dtype = family_.size() % 2 == 0 ? DType::kBFloat16 : DType::kFloat16;
        spec.format = format;
        spec.h_q = 4;
        if (format == CacheFormat::kFloat16) spec.dtype = DType::kFloat16;
        if (format == CacheFormat::kBFloat16) spec.dtype = DType::kBFloat16;
        if (format == CacheFormat::kFp8_584) spec.d_qk = 512;
        return spec;
    }
    Family take() { return std::move(family_); }

private:
    std::uint64_t seed_;
    Family family_;
};

constexpr CacheFormat kFp8Formats[] = {CacheFormat::kFp8Flat, CacheFormat::kFp8_656, CacheFormat::kFp8_584};

}  // namespace

Family fp8_caches() {
    Builder family(20000);
    for (const CacheFormat format : kFp8Formats) {
        for (const double deviation : {0.01, 1.0, 50.0}) {
            DecodeSpec& spec = family.add("std_" + text(deviation * 100) + "_percent", format, {700, 0, 65, 2100});
            spec.logit_std = deviation;
            spec.keys = deviation == 1 ? KeyOrder::kRandom : KeyOrder::kRising;
            spec.s_q = 2;
            spec.causal = true;
            spec.spread_groups = true;
        }
        for (const std::int64_t page : {1, 2, 61, 64, 69}) {
            DecodeSpec& spec = family.add("page_" + text(page), format, {200, 1, 77});
            spec.page_size = page;
            spec.pool_layers = page == 64 ? 3 : 1;
            spec.spare_pages = page == 61 ? 0 : 2;  // the pool ends with its last page
            spec.power_of_two_scales = page % 2 == 0;
        }
        for (const std::int64_t heads : {1, 20, 65, 128}) family.add("heads_" + text(heads), format, {130}).h_q = heads;
        DecodeSpec& tokens = family.add("tokens_16_shared_pages", format, {170, 140});
        tokens.s_q = 16;
        tokens.h_q = 20;
        tokens.causal = true;
        tokens.pages = PageOrder::kShared;
        DecodeSpec& nan = family.add("nan_request", format, {65, 300, 130});
        nan.nan_request = 1;
        nan.attn_sink = true;
    }
    for (const bool fp8 : {false, true}) {
        for (const int descales : {0, 1, 2}) {
            DecodeSpec& spec = family.add(std::string(fp8 ? "e4m3" : "16bit") + "_queries_descales_" + text(descales),
                                          CacheFormat::kFp8Flat, {90, 0, 300, 64});
            if (fp8) spec.dtype = DType::kBFloat16;
            spec.fp8_queries = fp8;
            spec.descales = descales;
            spec.h_q = 8;
            spec.h_kv = descales == 1 ? 2 : 1;
            spec.strided_q = true;
            spec.s_q = 2;
            spec.causal = true;
        }
    }
    constexpr std::pair<int, int> kOtherDims[] = {{512, 512}, {320, 256}};
    for (const auto& [d_qk, d_v] : kOtherDims) {
        DecodeSpec& spec = family.add("dims_" + text(d_qk), CacheFormat::kFp8Flat, {200, 5});
        spec.d_qk = d_qk;
        spec.d_v = d_v;
    }
    return family.take();
}

Family index_lists() {
    Builder family(21000);
    int turn = 0;
    const auto next_format = [&turn] { return kAllCacheFormats[turn++ % std::size(kAllCacheFormats)]; };
    for (const std::int64_t topk : {1, 63, 64, 65, 96, 100, 192, 576, 2047, 2049}) {
        DecodeSpec& spec = family.add("topk_" + text(topk), next_format(), {400, 0, 70});
        spec.topk = topk;
        spec.s_q = 2;
        spec.list_lengths = topk % 2 == 0 ? ListLengths::kPerRequest : ListLengths::kPerToken;
    }
    for (const std::int64_t heads : {1, 3, 8, 12, 16, 20, 32, 48, 63, 64, 65, 96, 126, 128}) {
        DecodeSpec& spec = family.add("heads_" + text(heads), next_format(), {300, 40});
        spec.h_q = heads;
        spec.topk = 130;
        spec.s_q = heads % 3 + 1;
    }
    for (const std::int64_t page : {1, 2, 61, 64, 69, 576}) {
        DecodeSpec& spec = family.add("page_" + text(page), next_format(), {700, 3});
        spec.page_size = page;
        spec.topk = 96;
        spec.spare_pages = page % 2 ? 0 : 2;
    }
    for (const std::int64_t tokens : {63, 64, 65, 128}) {
        // Entries at or past the length hold ids of tokens that are NaN, and ids of none.
        DecodeSpec& spec = family.add("tokens_" + text(tokens), next_format(), {600});
        spec.s_q = tokens;
        spec.h_q = 2;
        spec.topk = 512;
        spec.list_lengths = ListLengths::kPerToken;
        spec.masked = 0;
    }
    for (const bool sink : {false, true}) {
        DecodeSpec& masked =
            family.add(std::string("all_masked_") + (sink ? "sink" : "plain"), next_format(), {5, 9, 70});
        masked.topk = 64;
        masked.masked = 1;
        masked.attn_sink = sink;
        DecodeSpec& rising = family.add(std::string("rising_") + (sink ? "sink" : "plain"), next_format(), {3000});
        rising.topk = 2500;
        rising.keys = KeyOrder::kRising;
        rising.logit_std = 50;
        rising.attn_sink = sink;
    }
    DecodeSpec& nan = family.add("nan_request", next_format(), {100, 30, 2200});
    nan.nan_request = 1;
    nan.topk = 90;
    DecodeSpec& uneven = family.add("batch_of_37", next_format(), {});
    for (int i = 0; i < 37; ++i) uneven.lengths.push_back(i % 5 == 0 ? 0 : 7 * i);
    uneven.topk = 128;
    uneven.list_lengths = ListLengths::kPerRequest;
    DecodeSpec& grouped = family.add("heads_over_kv_heads", CacheFormat::kBFloat16, {90, 11});
    grouped.h_q = 6;
    grouped.h_kv = 3;
    grouped.topk = 70;
    grouped.pool_layers = 3;
    return family.take();
}

Family extra_caches() {
    Builder family(22000);
    for (const CacheFormat format : kAllCacheFormats) {
        for (const ListLengths lengths : {ListLengths::kAll, ListLengths::kPerRequest, ListLengths::kPerToken}) {
            DecodeSpec& spec = family.add("lengths_" + text(static_cast<int>(lengths)), format, {90, 0, 300, 64});
            spec.list_lengths = lengths;
            spec.topk = 128;
            spec.extra_topk = 70;
            spec.extra_page_size = lengths == ListLengths::kAll ? 64 : 2;
            spec.attn_sink = lengths != ListLengths::kAll;
            spec.h_q = 9;
            spec.s_q = 3;
            spec.descales = format == CacheFormat::kFp8Flat ? 2 : 0;
        }
        DecodeSpec& wide = family.add("wider_than_the_first", format, {700, 5});
        wide.topk = 3;
        wide.extra_topk = 2300;
        wide.extra_page_size = 69;
        wide.spread_groups = true;
        wide.attn_sink = true;
    }
    return family.take();
}

Family random_latent(std::uint64_t first_seed, int count) {
    Family family;
    for (std::uint64_t seed = first_seed; seed < first_seed + static_cast<std::uint64_t>(count); ++seed) {
        DecodeSpec spec = reference::random_spec(seed, 700, 40);
        reference::Random random(seed ^ 0x6c617465);
        spec.name = "seed_" + text(static_cast<std::int64_t>(seed));
        spec.format = kAllCacheFormats[random.between(0, 4)];
        if (spec.format == CacheFormat::kFp8_656) spec.d_qk = 576, spec.d_v = 512;
        if (spec.format == CacheFormat::kFp8_584) spec.d_qk = 512, spec.d_v = 512;
        if (spec.format == CacheFormat::kFp8_656 || spec.format == CacheFormat::kFp8_584) spec.h_kv = 1;
        if (spec.format == CacheFormat::kFp8Flat) {
            spec.descales = static_cast<int>(random.between(0, 2));
            spec.fp8_queries = random.chance(0.5);
            if (spec.fp8_queries) spec.dtype = DType::kBFloat16;
        }
        spec.power_of_two_scales = random.chance(0.5);
        spec.spread_groups = random.chance(0.5);
        spec.attn_sink = random.chance(0.4);
        if (random.chance(0.7)) {
            constexpr std::int64_t kWidths[] = {1, 7, 63, 64, 100, 128, 600};
            spec.topk = random.pick(kWidths);
            spec.causal = false;
            spec.list_lengths = static_cast<ListLengths>(random.between(0, 2));
            spec.masked = random.chance(0.3) ? 0 : 0.3;
            if (random.chance(0.5)) {
                spec.extra_topk = random.pick(kWidths);
                constexpr std::int64_t kPages[] = {1, 2, 64, 69};
                spec.extra_page_size = random.pick(kPages);
            }
        }
        family.push_back(spec);
    }
    return family;
}

}  // namespace flashmla::testing_support
