#include "reference/prefill.hpp"

#include <algorithm>
#include <cmath>

#include "reference/element.hpp"

namespace flashmla::reference {
namespace {

void read_row(const TensorView& view, std::int64_t token, std::int64_t head, std::vector<double>& values) {
    const std::int64_t first = element_offset(view, {token, head, 0});
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = element_at(view, first + static_cast<std::int64_t>(i));
}

}  // namespace

Span request_span(const TensorView& cu_seqlens, std::int64_t request) {
    const auto begin = static_cast<std::int64_t>(element(cu_seqlens, {request}));
    return {begin, static_cast<std::int64_t>(element(cu_seqlens, {request + 1})) - begin};
}

double softmax_scale(const DensePrefillArgs& args) {
    return args.has_softmax_scale ? args.softmax_scale : 1 / std::sqrt(static_cast<double>(args.q.shape[2]));
}

std::int64_t visible_keys(const DensePrefillArgs& args, const Row& row) {
    const std::int64_t length = request_span(args.cu_seqlens_kv, row.request).count;
    if (!args.causal) return length;
    // The last query token sees every key; each one before it sees one less.
    const std::int64_t tokens_after = request_span(args.cu_seqlens_q, row.request).count - 1 - row.token;
    return std::max<std::int64_t>(0, length - tokens_after);
}

AttentionRow attention_row(const DensePrefillArgs& args, const Row& row) {
    const std::int64_t kv_head = row.head / (args.q.shape[1] / args.k.shape[1]);
    const std::int64_t first_key = request_span(args.cu_seqlens_kv, row.request).begin;
    const auto reader = [first_key, kv_head](const TensorView& view) {
        return [=](std::int64_t j, std::vector<double>& values) {
            values.resize(static_cast<std::size_t>(view.shape[2]));
            read_row(view, first_key + j, kv_head, values);
        };
    };
    AttentionRow result{.query = std::vector<double>(static_cast<std::size_t>(args.q.shape[2])),
                        .scale = softmax_scale(args),
                        .keys = visible_keys(args, row),
                        .d_v = static_cast<std::size_t>(args.v.shape[2]),
                        .sink = {},
                        .read_key = reader(args.k),
                        .read_value = reader(args.v)};
    read_row(args.q, request_span(args.cu_seqlens_q, row.request).begin + row.token, row.head, result.query);
    return result;
}

RowResult prefill_row(const DensePrefillArgs& args, const Row& row) { return attend_row(attention_row(args, row)); }

}  // namespace flashmla::reference
