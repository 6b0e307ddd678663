#include "reference/sparse_prefill.hpp"

#include <cmath>
#include <sstream>

#include "reference/compare.hpp"

namespace flashmla::reference {
namespace {

// (x, y, z) with a first axis of one element.
TensorView with_batch(TensorView view) {
    for (int axis = view.rank; axis > 0; --axis) {
        view.shape[axis] = view.shape[axis - 1];
        view.stride[axis] = view.stride[axis - 1];
    }
    view.shape[0] = 1;
    view.stride[0] = 0;
    ++view.rank;
    return view;
}

}  // namespace

DecodeArgs as_decode(const SparsePrefillArgs& args) {
    DecodeArgs decode;
    decode.q = with_batch(args.q);
    decode.k_cache = args.kv;
    decode.k_cache.rank = 4;
    decode.k_cache.shape = {1, args.kv.shape[0], 1, args.kv.shape[2]};
    decode.k_cache.stride = {0, args.kv.stride[0], args.kv.stride[1], args.kv.stride[2]};
    decode.indices = args.indices;
    decode.indices.shape = {1, args.indices.shape[0], args.indices.shape[2]};
    decode.indices.stride = {0, args.indices.stride[0], 1};
    if (args.topk_length.rank != 0) decode.topk_length = with_batch(args.topk_length);
    decode.attn_sink = args.attn_sink;
    decode.out = with_batch(args.out);
    decode.lse = args.lse;
    decode.lse.rank = 3;
    decode.lse.shape = {1, args.lse.shape[1], args.lse.shape[0]};
    decode.lse.stride = {0, args.lse.stride[1], args.lse.stride[0]};
    decode.softmax_scale = args.softmax_scale;
    decode.has_softmax_scale = args.has_softmax_scale;
    return decode;
}

std::string compare_sparse_prefill(const SparsePrefillArgs& args, const RoundingModel& model) {
    const DecodeArgs decode = as_decode(args);
    const std::vector<Row> rows = sample_rows(decode, 0, 0);
    const Comparison comparison = compare_rows(decode, rows, model);
    if (!comparison.passed) return comparison.message;
    for (const Row& row : rows) {
        const RowResult exact = decode_row(decode, row);
        const double bound = error_bound(decode, row, exact, model).max_logit;
        const double got = static_cast<const float*>(
            args.max_logits.data)[row.token * args.max_logits.stride[0] + row.head * args.max_logits.stride[1]];
        if (got == exact.max_logit || std::abs(got - exact.max_logit) <= bound) continue;
        std::ostringstream text;
        text << "max_logits of " << describe(row) << " expected " << exact.max_logit << " got " << got << " bound "
             << bound;
        return text.str();
    }
    return {};
}

}  // namespace flashmla::reference
