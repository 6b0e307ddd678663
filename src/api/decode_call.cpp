// From checked tensors to the raw pointers and strides that backends work with.
#include "api/check.hpp"
#include "api/scale.hpp"
#include "api/tensor_check.hpp"

namespace flashmla::api {
namespace {

core::IndexLists lists_of(const TensorView& indices, const TensorView& lengths) {
    core::IndexLists lists;
    if (!given(indices)) return lists;
    lists.ids_b = indices.stride[0];
    lists.ids_token = indices.stride[1];
    if (!given(lengths)) return lists;
    lists.lengths_b = lengths.stride[0];
    lists.lengths_token = lengths.rank == 2 ? lengths.stride[1] : 0;
    return lists;
}

core::Descale descale_of(const TensorView& view) {
    return {nullptr, given(view) && view.shape[0] > 1 ? view.stride[0] : 0};
}

// Null for a tensor that is not given, whatever its view holds besides its rank.
template <class T>
const T* address(const TensorView& view) {
    return given(view) ? static_cast<const T*>(view.data) : nullptr;
}

}  // namespace

void set_addresses(const DecodeArgs& args, const DecodeShape& shape, core::DecodeCall& call) {
    call.softmax_scale = scale_or_default(args, shape.d_qk);
    call.q = args.q.data;
    call.k_cache = args.k_cache.data;
    call.block_table = address<std::int32_t>(args.block_table);
    call.lengths = address<std::int32_t>(call.lengths_are_cumulative ? args.cu_seqlens_k : args.cache_seqlens);
    call.indices.ids = address<std::int32_t>(args.indices);
    call.indices.lengths = address<std::int32_t>(args.topk_length);
    call.extra_indices.ids = address<std::int32_t>(args.extra_indices);
    call.extra_indices.lengths = address<std::int32_t>(args.extra_topk_length);
    call.extra_cache.data = address<void>(args.extra_k_cache);
    call.attn_sink = address<float>(args.attn_sink);
    call.descale_q.values = address<float>(args.descale_q);
    call.descale_k.values = address<float>(args.descale_k);
    call.out = args.out.data;
    call.lse = static_cast<float*>(args.lse.data);
}

core::DecodeCall make_decode_call(const DecodeArgs& args, const DecodeShape& shape) {
    const auto& q = args.q.stride;
    const auto& k = args.k_cache.stride;
    const auto& extra = args.extra_k_cache.stride;
    const auto& out = args.out.stride;
    const auto& lse = args.lse.stride;
    core::DecodeCall call;
    call.strides = {.q_b = q[0],
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
                    .table_b = args.block_table.stride[0]};
    call.num_pages = args.k_cache.shape[0];
    call.lengths_are_cumulative = given(args.cu_seqlens_k);
    call.indices = lists_of(args.indices, args.topk_length);
    call.extra_indices = lists_of(args.extra_indices, args.extra_topk_length);
    call.extra_cache = {.data = nullptr,
                        .num_pages = args.extra_k_cache.shape[0],
                        .page_stride = extra[0],
                        .token_stride = extra[1],
                        .head_stride = extra[2]};
    call.descale_q = descale_of(args.descale_q);
    call.descale_k = descale_of(args.descale_k);
    set_addresses(args, shape, call);
    return call;
}

}  // namespace flashmla::api
