// The parts of a case that only sparse calls and fp8 caches have.
#include <algorithm>
#include <limits>

#include "reference/case_data.hpp"
#include "reference/case_pool.hpp"
#include "reference/decode_case.hpp"
#include "reference/random.hpp"

namespace flashmla::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Tokens of request i in the extra cache: none for every third.
std::int64_t extra_tokens(const DecodeSpec& spec, std::int64_t i) {
    return spec.extra_topk == 0 || i % 3 == 2 ? 0 : 5 + 7 * i + spec.extra_topk / 2;
}

std::int32_t wild_id(Random& random, std::int64_t tokens) {
    const std::int64_t wild[] = {
        -1, -1, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max(), tokens, tokens + 5};
    return static_cast<std::int32_t>(random.pick(wild));
}

// How many entries of a list count, as it is passed: 0, 1, all and more than all come up more often than chance has it.
std::int32_t list_length(Random& random, std::int64_t width) {
    const std::int64_t edges[] = {0, 1, width, width - 1, width + 7, -3};
    return static_cast<std::int32_t>(random.chance(0.4) ? random.pick(edges) : random.between(0, width));
}

struct Lists {
    std::int64_t b, s_q, width;
    std::int64_t pool_tokens;
    ListLengths lengths;
    double masked;
    bool rising;
};

// token_id(request, k): the id of the request's k-th token; tokens(request): how many it has.
template <class Tokens, class TokenId>
void fill(const Lists& lists, std::uint64_t seed, const Tokens& tokens, const TokenId& token_id,
          std::vector<std::int32_t>& ids, std::vector<std::int32_t>& counts) {
    Random random(seed);
    if (lists.lengths != ListLengths::kAll) {
        const std::int64_t all = lists.lengths == ListLengths::kPerRequest ? lists.b : lists.b * lists.s_q;
        for (std::int64_t i = 0; i < all; ++i) counts.push_back(list_length(random, lists.width));
    }
    ids.resize(lists.b * lists.s_q * lists.width);
    for (std::int64_t row = 0; row < lists.b * lists.s_q; ++row) {
        const std::int64_t request = row / lists.s_q;
        std::int64_t count = lists.width;
        if (!counts.empty()) {
            count = counts[lists.lengths == ListLengths::kPerRequest ? request : row];
            count = std::clamp<std::int64_t>(count, 0, lists.width);
        }
        const bool all_masked = tokens(request) == 0 || (lists.masked > 0 && random.chance(0.08));
        for (std::int64_t e = 0; e < lists.width; ++e) {
            std::int32_t& id = ids[row * lists.width + e];
            if (e >= count && random.chance(0.5)) {
                // Never to be read: any token of the pool, also those that hold poison.
                id = static_cast<std::int32_t>(random.between(0, lists.pool_tokens));
            } else if (e >= count || all_masked || random.chance(lists.masked)) {
                id = wild_id(random, lists.pool_tokens);
            } else {
                const std::int64_t last = tokens(request) - 1;
                id = token_id(request, lists.rising ? e * last / std::max<std::int64_t>(lists.width - 1, 1)
                                                    : random.between(0, last));
            }
        }
    }
}

}  // namespace

float DecodeCase::flat_scale(std::int64_t request) const {
    if (descale_k_.empty()) return 1;
    return descale_k_[spec_.descales == 1 ? 0 : request];
}

void DecodeCase::fill_factors() {
    Random random(spec_.seed ^ 0x66616374);
    const auto b = static_cast<std::int64_t>(spec_.lengths.size());
    for (std::int64_t i = 0; i < (spec_.descales == 2 ? b : spec_.descales); ++i) {
        descale_k_.push_back(0.7f + 0.1f * static_cast<float>(random.between(0, 12)));
        if (spec_.fp8_queries) descale_q_.push_back(0.01f * static_cast<float>(random.between(1, 9)));
    }
    for (std::int64_t h = 0; spec_.attn_sink && h < spec_.h_q; ++h) {
        const float edge = h % 7 == 3 ? -kInfinity : kInfinity;
        sink_.push_back(h % 7 == 3 || h % 7 == 5 ? edge : 3 + 4 * random.normal());
    }
}

void DecodeCase::fill_extra_pool() {
    if (spec_.extra_topk == 0) return;
    const CaseData data(spec_);
    const auto b = static_cast<std::int64_t>(spec_.lengths.size());
    extra_first_page_.push_back(0);
    for (std::int64_t i = 0; i < b; ++i) {
        const std::int64_t pages = (extra_tokens(spec_, i) + spec_.extra_page_size - 1) / spec_.extra_page_size;
        extra_first_page_.push_back(extra_first_page_.back() + pages);
    }
    const std::int64_t page = cache_page_bytes(cache_format(spec_), spec_.d_qk, spec_.extra_page_size) * spec_.h_kv / 2;
    const std::int64_t pages = extra_first_page_.back() + 1;  // one that nobody owns
    extra_pool_.assign(2 * kGuard + pages * page,
                       is_16bit(spec_.format) ? poison_code(spec_.poison, spec_.dtype) : 0xffff);
    Random random(spec_.seed ^ 0x65787472);
    std::vector<float> values(spec_.d_qk);
    for (std::int64_t i = 0; i < b; ++i) {
        for (std::int64_t k = 0; k < extra_tokens(spec_, i); ++k) {
            std::uint16_t* base =
                extra_pool_.data() + kGuard + (extra_first_page_[i] + k / spec_.extra_page_size) * page;
            for (std::int64_t head = 0; head < spec_.h_kv; ++head) {
                data.make_key(random, i, k, values.data());
                write_key(spec_, values.data(), flat_scale(i),
                          {base, head, k % spec_.extra_page_size, spec_.extra_page_size});
            }
        }
    }
}

void DecodeCase::fill_lists() {
    const auto b = static_cast<std::int64_t>(spec_.lengths.size());
    Lists lists{.b = b,
                .s_q = spec_.s_q,
                .width = spec_.topk,
                .pool_tokens = num_pages_ * spec_.page_size,
                .lengths = spec_.list_lengths,
                .masked = spec_.masked,
                .rising = spec_.keys == KeyOrder::kRising};
    fill(
        lists, spec_.seed ^ 0x6c697374, [&](std::int64_t i) { return std::int64_t{spec_.lengths[i]}; },
        [&](std::int64_t i, std::int64_t k) {
            const std::int64_t page = table_[i * table_width_ + k / spec_.page_size];
            return static_cast<std::int32_t>(page * spec_.page_size + k % spec_.page_size);
        },
        ids_, counts_);
    if (spec_.extra_topk == 0) return;
    lists.width = spec_.extra_topk;
    lists.pool_tokens = (extra_first_page_.back() + 1) * spec_.extra_page_size;
    fill(
        lists, spec_.seed ^ 0x6c697375, [&](std::int64_t i) { return extra_tokens(spec_, i); },
        [&](std::int64_t i, std::int64_t k) {
            return static_cast<std::int32_t>(extra_first_page_[i] * spec_.extra_page_size + k);
        },
        extra_ids_, extra_counts_);
}

void DecodeCase::add_sparse(DecodeArgs& args) const {
    const auto b = static_cast<std::int64_t>(spec_.lengths.size());
    const auto floats = [](const std::vector<float>& values) {
        return contiguous_view(values.data(), DType::kFloat32, {static_cast<std::int64_t>(values.size())});
    };
    if (!sink_.empty()) args.attn_sink = floats(sink_);
    if (!descale_q_.empty()) args.descale_q = floats(descale_q_);
    if (!descale_k_.empty()) args.descale_k = floats(descale_k_);
    if (spec_.topk == 0) return;
    args.block_table = args.cache_seqlens = args.cu_seqlens_k = {};
    const auto counts = [&](const std::vector<std::int32_t>& values) {
        return spec_.list_lengths == ListLengths::kPerRequest
                   ? contiguous_view(values.data(), DType::kInt32, {b})
                   : contiguous_view(values.data(), DType::kInt32, {b, spec_.s_q});
    };
    args.indices = contiguous_view(ids_.data(), DType::kInt32, {b, spec_.s_q, spec_.topk});
    if (spec_.list_lengths != ListLengths::kAll) args.topk_length = counts(counts_);
    if (spec_.extra_topk == 0) return;
    args.extra_indices = contiguous_view(extra_ids_.data(), DType::kInt32, {b, spec_.s_q, spec_.extra_topk});
    if (spec_.list_lengths != ListLengths::kAll) args.extra_topk_length = counts(extra_counts_);
    const std::int64_t record = args.k_cache.shape[3];
    const std::int64_t page = cache_page_bytes(cache_format(spec_), spec_.d_qk, spec_.extra_page_size) * spec_.h_kv;
    args.extra_k_cache = args.k_cache;
    args.extra_k_cache.data = const_cast<std::uint16_t*>(extra_pool_.data() + kGuard);
    args.extra_k_cache.shape = {extra_first_page_.back() + 1, spec_.extra_page_size, spec_.h_kv, record};
    args.extra_k_cache.stride[0] = page / (is_16bit(spec_.format) ? 2 : 1);
}

}  // namespace flashmla::reference
