#include "reference/decode_spec.hpp"

#include <algorithm>
#include <cstddef>
#include <sstream>

#include "reference/random.hpp"

namespace flashmla::reference {
namespace {

const char* name(KeyOrder order) {
    switch (order) {
        case KeyOrder::kRandom: return "random";
        case KeyOrder::kRising: return "rising";
        case KeyOrder::kDominantLast: return "dominant last";
    }
    return "?";
}

const char* name(PageOrder order) {
    switch (order) {
        case PageOrder::kPermuted: return "permuted";
        case PageOrder::kSequential: return "sequential";
        case PageOrder::kReversed: return "reversed";
        case PageOrder::kShared: return "shared";
        case PageOrder::kCycled: return "cycled";
    }
    return "?";
}

const char* name(Poison poison) {
    switch (poison) {
        case Poison::kNan: return "nan";
        case Poison::kInfinity: return "inf";
        case Poison::kMinusInfinity: return "-inf";
        case Poison::kAllOnes: return "0xff";
        case Poison::kZero: return "zero";
    }
    return "?";
}

void write_lengths(std::ostream& text, const std::vector<std::int32_t>& lengths) {
    constexpr std::size_t kShown = 8;
    text << "[";
    for (std::size_t i = 0; i < std::min(kShown, lengths.size()); ++i) text << (i ? "," : "") << lengths[i];
    text << (lengths.size() > kShown ? ",...]" : "]");
}

std::int32_t random_length(Random& random, int max_length) {
    // Short lengths and the edges of key tiles and pages come up far more often than chance would have it.
    constexpr int kEdges[] = {0, 1, 2, 13, 31, 32, 33, 63, 64, 65, 127, 128, 129, 192, 256, 2047, 2048, 2049};
    if (random.chance(0.3)) return std::min(random.pick(kEdges), max_length);
    if (random.chance(0.5)) return static_cast<std::int32_t>(random.between(0, std::min(max_length, 200)));
    return static_cast<std::int32_t>(random.between(0, max_length));
}

}  // namespace

std::string describe(const DecodeSpec& spec) {
    std::ostringstream text;
    text << (spec.name.empty() ? "case" : spec.name) << ": seed " << spec.seed << ", " << flashmla::name(spec.dtype)
         << ", b " << spec.lengths.size() << ", s_q " << spec.s_q << ", h_q " << spec.h_q << ", h_kv " << spec.h_kv
         << ", d " << spec.d_qk << "/" << spec.d_v << ", page " << spec.page_size << ", lengths ";
    write_lengths(text, spec.lengths);
    text << (spec.causal ? ", causal" : "") << ", logit std " << spec.logit_std;
    if (spec.has_softmax_scale) text << ", scale " << spec.softmax_scale;
    text << ", keys " << name(spec.keys) << ", pages " << name(spec.pages) << ", poison " << name(spec.poison);
    if (!is_16bit(spec.format)) text << ", cache " << flashmla::name(spec.format);
    if (spec.fp8_queries) text << ", e4m3 queries";
    if (spec.descales > 0) text << ", descales " << spec.descales;
    if (!spec.power_of_two_scales) text << ", any scales";
    if (spec.spread_groups) text << ", spread groups";
    if (spec.topk > 0) text << ", topk " << spec.topk << ", masked " << spec.masked;
    if (spec.list_lengths != ListLengths::kAll)
        text << ", list lengths a " << (spec.list_lengths == ListLengths::kPerRequest ? "request" : "token");
    if (spec.extra_topk > 0) text << ", extra topk " << spec.extra_topk << " page " << spec.extra_page_size;
    if (spec.attn_sink) text << ", sink";
    if (spec.pool_layers > 1) text << ", pool of " << spec.pool_layers << " layers";
    if (spec.cumulative_lengths) text << ", cumulative lengths";
    if (spec.strided_q) text << ", strided q";
    if (spec.strided_out) text << ", strided out";
    if (spec.live_heads > 0) text << ", heads from " << spec.live_heads << " NaN";
    if (spec.nan_request >= 0) text << ", request " << spec.nan_request << " NaN";
    return text.str();
}

DecodeSpec random_spec(std::uint64_t seed, int max_length, int max_rows) {
    Random random(seed);
    DecodeSpec spec;
    spec.name = "random";
    spec.seed = seed;
    spec.dtype = random.chance(0.5) ? DType::kBFloat16 : DType::kFloat16;
    constexpr std::int64_t kDims[][2] = {{576, 512}, {576, 512}, {512, 512}, {320, 256}};
    const auto& dims = kDims[random.between(0, 3)];
    spec.d_qk = dims[0];
    spec.d_v = dims[1];
    constexpr std::int64_t kPageSizes[] = {64, 64, 64, 1, 2, 16, 32, 61, 69, 128, 256};
    spec.page_size = random.pick(kPageSizes);

    constexpr std::int64_t kHeads[] = {1, 3, 8, 9, 12, 16, 20, 32, 63, 64, 96, 126, 128};
    constexpr std::int64_t kKvHeads[] = {1, 1, 1, 2, 3, 8};
    spec.h_kv = random.pick(kKvHeads);
    spec.h_q = random.chance(0.5) ? random.pick(kHeads) : random.between(1, 128);
    spec.h_q = std::max(spec.h_q - spec.h_q % spec.h_kv, spec.h_kv);
    spec.h_q = std::min<std::int64_t>(spec.h_q, std::max<std::int64_t>(max_rows / spec.h_kv, 1) * spec.h_kv);
    constexpr std::int64_t kQueryTokens[] = {1, 1, 1, 2, 2, 3, 4, 5, 17, 64, 128};
    spec.s_q = std::min(random.pick(kQueryTokens), std::max<std::int64_t>(1, max_rows / spec.h_q));
    spec.causal = random.chance(0.5);
    const std::int64_t most_requests = std::clamp<std::int64_t>(max_rows / (spec.h_q * spec.s_q), 1, 9);
    for (std::int64_t i = random.between(random.chance(0.02) ? 0 : 1, most_requests); i > 0; --i) {
        spec.lengths.push_back(random_length(random, max_length));
    }

    constexpr double kDeviations[] = {0.01, 1, 8, 50};
    spec.logit_std = random.pick(kDeviations);
    constexpr double kScales[] = {0.1352337788608801, 0.0721687836487032, 0.01, -0.05, 1};
    if (random.chance(0.3)) {
        spec.has_softmax_scale = true;
        spec.softmax_scale = random.pick(kScales);
    }
    spec.keys = static_cast<KeyOrder>(random.between(0, 2));
    spec.pages = static_cast<PageOrder>(random.between(0, 3));
    spec.poison = static_cast<Poison>(random.between(0, 3));
    spec.cumulative_lengths = random.chance(0.2);
    spec.pool_layers = random.chance(0.3) ? 3 : 1;
    spec.spare_pages = static_cast<int>(random.between(0, 3));
    spec.spare_columns = static_cast<int>(random.between(0, 3));
    spec.strided_q = random.chance(0.3);
    spec.strided_out = random.chance(0.3);
    return spec;
}

}  // namespace flashmla::reference
