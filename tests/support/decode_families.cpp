#include "support/decode_families.hpp"

#include <cstdint>
#include <string>
#include <utility>

#include "reference/random.hpp"

namespace flashmla::testing_support {
namespace {

using reference::DecodeSpec;
using reference::KeyOrder;
using reference::PageOrder;
using reference::Poison;

constexpr KeyOrder kOrders[] = {KeyOrder::kRandom, KeyOrder::kRising, KeyOrder::kDominantLast};
constexpr const char* kOrderNames[] = {"random", "rising", "dominant_last"};
constexpr DType kDTypes[] = {DType::kBFloat16, DType::kFloat16};

std::string text(std::int64_t value) { return std::to_string(value); }

// Adds specs to a family: each gets its own seed, and the dtypes take turns unless the spec says otherwise.
class Builder {
public:
    explicit Builder(std::uint64_t first_seed) : seed_(first_seed) {}

    DecodeSpec& add(std::string name, std::vector<std::int32_t> lengths) {
        DecodeSpec& spec = family_.emplace_back();
        spec.name = std::move(name);
        spec.seed = seed_++;
        spec.lengths = std::move(lengths);
        spec.dtype = kDTypes[family_.size() % 2];
        return spec;
    }
    Family take() { return std::move(family_); }

private:
    std::uint64_t seed_;
    Family family_;
};

}  // namespace

Family hard_data() {
    Builder family(1000);
    for (const double deviation : {0.01, 1.0, 8.0, 50.0}) {
        for (int order = 0; order < 3; ++order) {
            for (const DType dtype : kDTypes) {
                DecodeSpec& spec = family.add(std::string(kOrderNames[order]) + "_std_" + text(deviation * 100) +
                                                  "_percent_" + flashmla::name(dtype),
                                              {6000, 129, 1, 700, 64});
                spec.dtype = dtype;
                spec.logit_std = deviation;
                spec.keys = kOrders[order];
                spec.s_q = 2;
                spec.h_q = 20;
                spec.causal = true;
            }
        }
    }
    return family.take();
}

Family empty_and_short() {
    Builder family(2000);
    family.add("no_requests", {});
    DecodeSpec& no_pages = family.add("sixteen_empty_requests_no_pages", std::vector<std::int32_t>(16, 0));
    no_pages.spare_pages = no_pages.spare_columns = 0;
    family.add("empty_between_short", {0, 5, 0, 64});
    std::vector<std::int32_t> idle(1024, 0);
    idle[0] = 100;
    family.add("idle_slots", idle).h_q = 4;
    for (const std::int32_t last : {0, 1}) {
        DecodeSpec& spec = family.add("padded_slot_of_length_" + text(last), {10, 7, 12, last});
        spec.s_q = 2;
        spec.causal = true;
    }
    for (const bool causal : {true, false}) {
        DecodeSpec& spec = family.add(std::string("four_tokens_one_key_") + (causal ? "causal" : "full"), {1});
        spec.s_q = 4;
        spec.causal = causal;
    }
    DecodeSpec& every = family.add("two_tokens_every_length_to_200", {});
    for (std::int32_t length = 1; length <= 200; ++length) every.lengths.push_back(length);
    every.s_q = 2;
    every.h_q = 8;
    every.causal = true;
    DecodeSpec& prompt = family.add("prompt_longer_than_its_keys", {0, 3, 70, 200});
    prompt.s_q = 128;
    prompt.h_q = 3;
    prompt.causal = true;
    return family.take();
}

Family poisoned_tails() {
    Builder family(3000);
    constexpr std::pair<Poison, const char*> kPoisons[] = {{Poison::kNan, "nan"},
                                                           {Poison::kInfinity, "inf"},
                                                           {Poison::kMinusInfinity, "minus_inf"},
                                                           {Poison::kAllOnes, "ones"}};
    for (const auto& [poison, poison_name] : kPoisons) {
        for (const std::int32_t length : {0, 1, 13, 63, 64, 65, 127, 128}) {
            DecodeSpec& spec = family.add("length_" + text(length) + "_before_" + poison_name, {length});
            spec.poison = poison;
            spec.s_q = length % 2 + 1;
            spec.causal = length % 2 == 1;
        }
    }
    DecodeSpec& junk = family.add("junk_page_ids_past_the_length", {70, 1, 64});
    junk.spare_columns = 5;
    return family.take();
}

Family contained_nan() {
    Builder family(4000);
    DecodeSpec& heads = family.add("nan_in_padding_heads", {100, 700});
    heads.h_q = 64;
    heads.live_heads = 8;
    DecodeSpec& tokens = family.add("nan_in_padding_heads_of_several_tokens", {100, 700});
    tokens.h_q = 16;
    tokens.s_q = 3;
    tokens.live_heads = 5;
    DecodeSpec& request = family.add("nan_request_between_others", {65, 300, 1, 2500});
    request.nan_request = 1;
    DecodeSpec& first = family.add("nan_request_first", {3000, 0, 64});
    first.nan_request = 0;
    return family.take();
}

Family heads_and_tokens() {
    Builder family(5000);
    for (const std::int64_t heads : {1, 3, 8, 9, 12, 16, 20, 32, 48, 63, 64, 65, 96, 126, 127, 128}) {
        family.add("heads_" + text(heads), {200, 0, 65}).h_q = heads;
    }
    constexpr std::pair<int, int> kGroups[] = {{2, 2}, {6, 2}, {9, 3}, {12, 3}, {8, 8}, {64, 8}, {128, 2}, {126, 3}};
    for (const auto& [h_q, h_kv] : kGroups) {
        DecodeSpec& spec = family.add("heads_" + text(h_q) + "_over_" + text(h_kv), {130, 1, 64});
        spec.h_q = h_q;
        spec.h_kv = h_kv;
        spec.s_q = 2;
        spec.causal = true;
    }
    for (const std::int64_t tokens : {2, 3, 4, 5, 7, 64, 127, 128}) {
        for (const bool causal : {true, false}) {
            DecodeSpec& spec = family.add("tokens_" + text(tokens) + (causal ? "_causal" : "_full"), {180, 66});
            spec.s_q = tokens;
            spec.causal = causal;
        }
    }
    DecodeSpec& wide = family.add("tokens_128_heads_128", {150});
    wide.s_q = wide.h_q = 128;
    wide.causal = true;
    return family.take();
}

Family layouts() {
    Builder family(6000);
    constexpr std::pair<int, int> kDims[] = {{576, 512}, {512, 512}, {320, 256}};
    for (const auto& [d_qk, d_v] : kDims) {
        for (const std::int64_t page : {1, 2, 16, 32, 61, 64, 69, 128, 256, 576}) {
            DecodeSpec& spec = family.add("dims_" + text(d_qk) + "_" + text(d_v) + "_page_" + text(page), {600, 1, 77});
            spec.d_qk = d_qk;
            spec.d_v = d_v;
            spec.page_size = page;
            spec.spare_pages = page == 64 ? 0 : 2;  // at 64 the last page ends with the allocation
        }
    }
    constexpr std::pair<PageOrder, const char*> kPageOrders[] = {{PageOrder::kSequential, "sequential"},
                                                                 {PageOrder::kReversed, "reversed"},
                                                                 {PageOrder::kShared, "shared"},
                                                                 {PageOrder::kCycled, "cycled"}};
    for (const auto& [order, order_name] : kPageOrders) {
        family.add(std::string("pages_") + order_name, {1000, 900, 130, 64, 2500}).pages = order;
    }
    for (const std::int64_t page : {64, 61}) {
        DecodeSpec& spec = family.add("pool_of_eight_layers_page_" + text(page), {300, 64, 1});
        spec.pool_layers = 8;
        spec.page_size = page;
    }
    DecodeSpec& grouped = family.add("pool_of_layers_and_kv_heads", {300, 64, 1});
    grouped.pool_layers = 3;
    grouped.h_kv = 2;
    DecodeSpec& strided = family.add("strided_q_and_out", {200, 0, 65});
    strided.strided_q = strided.strided_out = true;
    strided.s_q = 3;
    strided.causal = true;
    family.add("cumulative_lengths", {200, 0, 65, 0, 1}).cumulative_lengths = true;
    for (const double scale : {0.0, -0.05, 0.1352337788608801}) {
        DecodeSpec& spec = family.add("scale_" + text(scale * 1000) + "_thousandths", {300, 65});
        spec.softmax_scale = scale;
        spec.has_softmax_scale = true;
    }
    return family.take();
}

Family large() {
    Builder family(7000);
    DecodeSpec& uneven = family.add("three_hundred_uneven_requests", {});
    reference::Random random(7);
    for (int i = 0; i < 300; ++i) {
        const double u = static_cast<double>(random.between(0, 1000)) / 1000;
        uneven.lengths.push_back(1 + static_cast<std::int32_t>(4999 * u * u * u * u));
    }
    uneven.d_qk = 320;
    uneven.d_v = 256;
    for (const std::int32_t length : {131071, 131072, 131073, 262144, 1048576}) {
        DecodeSpec& spec = family.add("length_" + text(length), {length});
        spec.h_q = 2;
        spec.pages = PageOrder::kCycled;
    }
    DecodeSpec& requests = family.add("requests_65600", {});
    for (int i = 0; i < 65600; ++i) requests.lengths.push_back(i % 3);
    requests.h_q = 1;
    requests.d_qk = 320;
    requests.d_v = 256;
    requests.page_size = 2;
    DecodeSpec& tokens = family.add("tokens_4096", {4200});
    tokens.s_q = 4096;
    tokens.h_q = 2;
    tokens.d_qk = 320;
    tokens.d_v = 256;
    tokens.causal = true;
    return family.take();
}

Family all_small() {
    Family all;
    for (Family (*make)() : {hard_data, empty_and_short, poisoned_tails, contained_nan, heads_and_tokens, layouts}) {
        Family family = make();
        all.insert(all.end(), family.begin(), family.end());
    }
    return all;
}

}  // namespace flashmla::testing_support
