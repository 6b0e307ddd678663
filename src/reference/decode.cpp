#include "reference/decode.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "reference/cache.hpp"
#include "reference/row_keys.hpp"

namespace flashmla::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The query as numbers, the request's descale_q included.
std::vector<double> load_query(const DecodeArgs& args, const Row& row) {
    std::vector<double> query(args.q.shape[3]);
    if (args.q.dtype == DType::kFloat8E4m3) {
        const std::uint8_t* codes = static_cast<const std::uint8_t*>(args.q.data) + query_offset(args, row);
        const double descale = descale_of(args.descale_q, row.request);
        for (std::size_t i = 0; i < query.size(); ++i) query[i] = e4m3_value(codes[i]) * descale;
        return query;
    }
    const std::uint16_t* codes = query_row(args, row);
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

AttentionRow attention_row(const DecodeArgs& args, const Row& row) {
    const auto keys = std::make_shared<const RowKeys>(args, row);
    const auto read = [keys](std::int64_t j, std::vector<double>& values) { keys->read(j, values); };
    AttentionRow result{.query = load_query(args, row),
                        .scale = softmax_scale(args),
                        .keys = keys->count(),
                        .d_v = static_cast<std::size_t>(args.out.shape[3]),
                        .sink = {},
                        .read_key = read,
                        .read_value = read};  // a value is the first columns of its key
    if (args.attn_sink.rank != 0) {
        result.sink = static_cast<const float*>(args.attn_sink.data)[row.head * args.attn_sink.stride[0]];
    }
    return result;
}

RowResult decode_row(const DecodeArgs& args, const Row& row) { return attend_row(attention_row(args, row)); }

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
