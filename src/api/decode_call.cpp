// From checked tensors to the raw pointers and strides that backends work with.
#include "api/check.hpp"
#include "api/scale.hpp"
#include "api/tensor_check.hpp"

namespace flashmla::api {
namespace {

core::IndexLists lists_of(const TensorView& indices, const TensorView& lengths) {
    core::IndexLists lists;
    if (!given(indices)) return lists;
    lists.ids = static_cast<const std::int32_t*>(indices.data);
    lists.ids_b = indices.stride[0];
    lists.ids_token = indices.stride[1];
    if (!given(lengths)) return lists;
    lists.lengths = static_cast<const std::int32_t*>(lengths.data);
    lists.lengths_b = lengths.stride[0];
    lists.lengths_token = lengths.rank == 2 ? lengths.stride[1] : 0;
    return lists;
}

core::Descale descale_of(const TensorView& view) {
    return {static_cast<const float*>(view.data), given(view) && view.shape[0] > 1 ? view.stride[0] : 0};
}

}  // namespace

core::DecodeCall make_decode_call(const DecodeArgs& args, const DecodeShape& shape) {
    const auto& q = args.q.stride;
    const auto& k = args.k_cache.stride;
    const auto& out = args.out.stride;
    const auto& lse = args.lse.stride;
    const bool cumulative = given(args.cu_seqlens_k);
    const TensorView& lengths = cumulative ? args.cu_seqlens_k : args.cache_seqlens;
    return {
        .plan = nullptr,
        .strides = {.q_b = q[0],
                    .q_token = q[1],
                    .q_head = q[2],
                    .k_page = k[0],
                    .k_token = k[1],
                    .k_head = k[2],
                    .out_b = out[0],
                    .out_token = out[1],
                    .out_head = out[2],
                    .lse_b = lse[0],
                    .lse_head = lse[1],
                    .lse_token = lse[2],
                    .table_b = args.block_table.stride[0]},
        .softmax_scale = scale_or_default(args, shape.d_qk),
        .num_pages = args.k_cache.shape[0],
        .q = args.q.data,
        .k_cache = args.k_cache.data,
        .block_table = static_cast<const std::int32_t*>(args.block_table.data),
        .lengths = static_cast<const std::int32_t*>(lengths.data),
        .lengths_are_cumulative = cumulative,
        .indices = lists_of(args.indices, args.topk_length),
        .extra_indices = lists_of(args.extra_indices, args.extra_topk_length),
        .extra_cache = {.data = args.extra_k_cache.data,
                        .num_pages = args.extra_k_cache.shape[0],
                        .page_stride = args.extra_k_cache.stride[0],
                        .token_stride = args.extra_k_cache.stride[1],
                        .head_stride = args.extra_k_cache.stride[2]},
        .attn_sink = static_cast<const float*>(args.attn_sink.data),
        .descale_q = descale_of(args.descale_q),
        .descale_k = descale_of(args.descale_k),
        .out = args.out.data,
        .lse = static_cast<float*>(args.lse.data),
        .workspace = nullptr,
        .stream = nullptr,
    };
}

}  // namespace flashmla::api
