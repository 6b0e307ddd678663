#include "support/field_families.hpp"

#include <string>
#include <utility>

namespace flashmla::testing_support {
namespace {

using reference::DecodeSpec;
using reference::ListLengths;
using reference::PageOrder;

using Lengths = std::vector<std::int32_t>;

std::string text(std::int64_t value) { return std::to_string(value); }

Lengths every(std::int32_t first, std::int32_t last, std::int32_t step) {
    Lengths lengths;
    for (std::int32_t length = first; length <= last; length += step) lengths.push_back(length);
    return lengths;
}

Lengths idle_slots(std::size_t slots) {
    Lengths lengths(slots, 0);
    lengths[0] = 100;
    return lengths;
}

// Cases of one format.
class Builder {
public:
    Builder(Family& family, std::uint64_t first_seed, CacheFormat format)
        : family_(family), seed_(first_seed), format_(format) {}

    DecodeSpec& add(std::string name, Lengths lengths) {
        DecodeSpec& spec = family_.emplace_back();
        spec.name = "case_" + std::move(name) + "_" + flashmla::name(format_);
        spec.seed = seed_++;
        spec.lengths = std::move(lengths);
        spec.format = format_;
        // The 16-bit dtype takes turns where the cache leaves it open.
        const bool fp16 = format_ == CacheFormat::kFloat16 || (!is_16bit(format_) && seed_ % 2 == 0);
        spec.dtype = fp16 ? DType::kFloat16 : DType::kBFloat16;
        spec.h_q = 3;
        if (format_ == CacheFormat::kFp8_584) spec.d_qk = 512;
        return spec;
    }

private:
    Family& family_;
    std::uint64_t seed_;
    CacheFormat format_;
};

void add_shared(Builder& family, const std::string& suffix, std::int64_t topk) {
    const auto add = [&](const std::string& name, Lengths lengths) -> DecodeSpec& {
        DecodeSpec& spec = family.add(name + suffix, std::move(lengths));
        spec.topk = topk;
        return spec;
    };
    DecodeSpec& no_pages = add("1_no_pages", Lengths(16, 0));
    no_pages.spare_pages = no_pages.spare_columns = 0;
    add("1_empty_between_short", {0, 5, 0, 64});
    add("2_idle_slots", idle_slots(300)).h_q = 2;
    add("9_no_requests", {});
    DecodeSpec& heads = add("20_nan_in_padding_heads", {100, 70});
    heads.h_q = 64;
    heads.live_heads = 8;
    add("46_pages_reversed", {200, 130}).pages = PageOrder::kReversed;
    add("46_pages_shared", {200, 130}).pages = PageOrder::kShared;
    add("50_eight_layers", {130, 64, 1}).pool_layers = 8;
    DecodeSpec& strided = add("51_strided_q_and_out", {130, 0, 65});
    strided.strided_q = strided.strided_out = true;
    strided.s_q = 2;
    for (const std::int64_t page : {1, 2, 16, 32, 61, 64, 69, 128, 256, 576}) {
        DecodeSpec& spec = add("45_page_" + text(page), {600, 1, 77});
        spec.page_size = page;
        spec.spare_pages = page % 2 == 0 ? 2 : 0;  // without one the pool ends with the last token's page
        spec.spread_groups = true;
    }
    for (const std::int64_t tokens : {3, 5, 64, 127, 128}) {
        DecodeSpec& spec = add("49_tokens_" + text(tokens), {150});
        spec.s_q = tokens;
        spec.h_q = 2;
        spec.causal = topk == 0;
    }
}

}  // namespace

Family dense_field_cases() {
    Family all;
    for (const CacheFormat format : kAllCacheFormats) {
        Builder family(all, 30000 + 1000 * static_cast<std::uint64_t>(format), format);
        add_shared(family, "", 0);
        for (const std::int32_t last : {0, 1}) {
            DecodeSpec& spec = family.add("3_padded_slot_of_length_" + text(last), {10, 7, 12, last});
            spec.s_q = 2;
            spec.causal = true;
        }
        DecodeSpec& tokens = family.add("4_four_tokens_one_key", {1});
        tokens.s_q = 4;
        tokens.causal = true;
        for (const auto poison : {reference::Poison::kNan, reference::Poison::kInfinity, reference::Poison::kAllOnes}) {
            family.add("11_tail_of_poison_" + text(static_cast<int>(poison)), {13, 1, 63, 65}).poison = poison;
        }
        family.add("13_junk_past_the_length", {70, 1, 64}).spare_columns = 5;
        DecodeSpec& lengths = family.add("36_two_tokens", every(1, 200, 7));
        lengths.s_q = 2;
        lengths.causal = true;
        for (const std::int64_t s_q : {1, 16}) {
            DecodeSpec& spec = family.add("64_twenty_heads_tokens_" + text(s_q), every(1, 600, s_q == 1 ? 37 : 199));
            spec.h_q = 20;
            spec.s_q = s_q;
            spec.causal = true;
            spec.fp8_queries = format == CacheFormat::kFp8Flat;
            if (spec.fp8_queries) spec.dtype = DType::kBFloat16;
            spec.descales = spec.fp8_queries ? 1 : 0;
        }
    }
    return all;
}

Family sparse_field_cases() {
    Family all;
    for (const CacheFormat format : kAllCacheFormats) {
        Builder family(all, 40000 + 1000 * static_cast<std::uint64_t>(format), format);
        add_shared(family, "_sparse", 96);
        for (const bool sink : {false, true}) {
            DecodeSpec& spec =
                family.add(std::string("7_rows_of_minus_one_") + (sink ? "sink" : "plain"), {40, 40, 40});
            spec.topk = 64;
            spec.masked = 1;
            spec.attn_sink = sink;
        }
        // Request 0 owns page 0 and is NaN.
        DecodeSpec& nan = family.add("14_nan_at_slot_0", {64, 130, 5});
        nan.topk = 100;
        nan.masked = 0.5;
        nan.nan_request = 0;
        nan.pages = PageOrder::kSequential;
        nan.spare_pages = 0;
        for (const std::int64_t tokens : {63, 64, 65, 66, 128}) {
            DecodeSpec& spec = family.add("15_list_lengths_tokens_" + text(tokens), {200});
            spec.s_q = tokens;
            spec.h_q = 1;
            spec.topk = 512;
            spec.masked = 0;
            spec.list_lengths = ListLengths::kPerToken;
        }
        DecodeSpec& batch = family.add("19_batch_of_37", {});
        for (int i = 0; i < 37; ++i) batch.lengths.push_back(i % 5 == 0 ? 0 : 5 * i);
        batch.topk = 70;
        batch.list_lengths = ListLengths::kPerRequest;
        for (const std::int64_t topk : {1, 63, 65, 96, 100, 192, 576, 2047}) {
            family.add("38_topk_" + text(topk), {400, 0}).topk = topk;
        }
        for (const std::int64_t heads : {1, 3, 8, 12, 16, 20, 32, 48, 63, 96, 126, 128}) {
            DecodeSpec& spec = family.add("39_heads_" + text(heads), {90, 40});
            spec.h_q = heads;
            spec.topk = 70;
        }
        DecodeSpec& folded = family.add("42_heads_32_topk_2048", {3000});
        folded.h_q = 32;
        folded.topk = 2048;
        DecodeSpec& counts = family.add("48_counts_of_each_token", {300, 200});
        counts.s_q = 4;
        counts.topk = 128;
        counts.list_lengths = ListLengths::kPerToken;
        DecodeSpec& extra = family.add("70_lengths_and_extra_cache", {300, 64});
        extra.topk = 128;
        extra.extra_topk = 64;
        extra.extra_page_size = 2;
        extra.list_lengths = ListLengths::kPerRequest;
        extra.attn_sink = true;
    }
    return all;
}

Family long_field_cases() {
    Family all;
    Builder records(all, 50000, CacheFormat::kFp8_656);
    records.add("47_list_of_131073", {131073}).topk = 131073;
    Builder pages(all, 51000, CacheFormat::kFp8_584);
    pages.add("47_131073_tokens", {131073});
    for (DecodeSpec& spec : all) {
        spec.h_q = 1;
        spec.pages = PageOrder::kCycled;
    }
    return all;
}

}  // namespace flashmla::testing_support
