#include "reference/decode.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flashmla::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Score score(const DecodeArgs& args, const std::vector<double>& query, const std::uint16_t* key, double scale) {
    double sum = 0;
    double magnitude = 0;
    for (std::size_t i = 0; i < query.size(); ++i) {
        const double product = query[i] * core::decode_16bit(args.k_cache.dtype, key[i]);
        sum += product;
        magnitude += std::abs(product);
    }
    return {scale * sum, std::abs(scale) * magnitude};
}

std::vector<double> load_query(const DecodeArgs& args, const Row& row) {
    const std::uint16_t* codes = query_row(args, row);
    std::vector<double> query(args.q.shape[3]);
    for (std::size_t i = 0; i < query.size(); ++i) query[i] = core::decode_16bit(args.q.dtype, codes[i]);
    return query;
}

}  // namespace

double softmax_scale(const DecodeArgs& args) {
    return args.has_softmax_scale ? args.softmax_scale : 1 / std::sqrt(static_cast<double>(args.q.shape[3]));
}

std::int64_t visible_keys(const DecodeArgs& args, const Row& row) {
    const std::int64_t length = request_length(args, row.request);
    if (!args.causal) return length;
    // The last of the s_q query tokens sees every key; each one before it sees one less. Spelled out here, apart from
    // the function that the kernels share, so that an error there cannot hide.
    const std::int64_t tokens_after = args.q.shape[1] - 1 - row.token;
    return std::max<std::int64_t>(0, length - tokens_after);
}

RowResult decode_row(const DecodeArgs& args, const Row& row) {
    const std::int64_t heads_per_kv = args.q.shape[2] / args.k_cache.shape[2];
    const PagedKeys keys(args, row.request, row.head / heads_per_kv);
    const std::int64_t count = visible_keys(args, row);
    const std::vector<double> query = load_query(args, row);
    const double scale = softmax_scale(args);

    RowResult result{
        .scores = {}, .max_logit = -kInfinity, .lse = kInfinity, .out = std::vector<double>(args.out.shape[3])};
    if (count == 0) return result;

    result.scores.reserve(count);
    for (std::int64_t j = 0; j < count; ++j) {
        result.scores.push_back(score(args, query, keys.row(j), scale));
        result.max_logit = std::max(result.max_logit, result.scores.back().logit);
    }
    double sum = 0;
    for (const Score& s : result.scores) sum += std::exp(s.logit - result.max_logit);
    result.lse = result.max_logit + std::log(sum);

    for (std::int64_t j = 0; j < count; ++j) {
        const double weight = std::exp(result.scores[j].logit - result.max_logit) / sum;
        const std::uint16_t* value = keys.row(j);
        for (std::size_t d = 0; d < result.out.size(); ++d) {
            result.out[d] += weight * core::decode_16bit(args.k_cache.dtype, value[d]);
        }
    }
    return result;
}

DecodeResult decode_all(const DecodeArgs& args) {
    const auto& [b, s_q, h_q, d_v] = args.out.shape;
    DecodeResult result{std::vector<double>(b * s_q * h_q * d_v), std::vector<double>(b * h_q * s_q)};
    for (std::int64_t i = 0; i < b; ++i) {
        for (std::int64_t t = 0; t < s_q; ++t) {
            for (std::int64_t h = 0; h < h_q; ++h) {
                const RowResult row = decode_row(args, {i, t, h});
                std::copy(row.out.begin(), row.out.end(), result.out.begin() + ((i * s_q + t) * h_q + h) * d_v);
                result.lse[(i * h_q + h) * s_q + t] = row.lse;
            }
        }
    }
    return result;
}

Partial merge(std::span<const Partial> parts) {
    double max = -kInfinity;
    for (const Partial& part : parts) {
        if (!std::isinf(part.lse)) max = std::max(max, part.lse);
    }
    Partial merged{std::vector<double>(parts.empty() ? 0 : parts.front().out.size()), kInfinity};
    if (max == -kInfinity) return merged;

    double sum = 0;
    for (const Partial& part : parts) {
        if (std::isinf(part.lse)) continue;
        const double weight = std::exp(part.lse - max);
        sum += weight;
        for (std::size_t d = 0; d < merged.out.size(); ++d) merged.out[d] += weight * part.out[d];
    }
    for (double& value : merged.out) value /= sum;
    merged.lse = max + std::log(sum);
    return merged;
}

}  // namespace flashmla::reference
