#include "backends/cpu/latent_call.hpp"

#include "backends/cpu/config.hpp"

namespace flashmla::backends::cpu {

LatentCall latent_call(const core::DecodeCall& call) {
    const DecodeShape& shape = call.plan->shape;
    const std::int64_t element = is_16bit(shape.format) ? 2 : 1;
    const core::DecodeStrides& strides = call.strides;
    const core::ExtraCache& extra = call.extra_cache;
    return {.shape = shape,
            .num_workers = call.plan->num_workers,
            .strides = strides,
            .softmax_scale = call.softmax_scale,
            .cache = {.data = static_cast<const std::uint8_t*>(call.k_cache),
                      .num_pages = call.num_pages,
                      .page_size = shape.page_size,
                      .page_bytes = strides.k_page * element,
                      .token_bytes = strides.k_token * element,
                      .head_bytes = strides.k_head * element},
            .extra = {.data = static_cast<const std::uint8_t*>(extra.data),
                      .num_pages = extra.num_pages,
                      .page_size = core::max_of<std::int64_t>(shape.extra_page_size, 1),
                      .page_bytes = extra.page_stride * element,
                      .token_bytes = extra.token_stride * element,
                      .head_bytes = extra.head_stride * element},
            .q = call.q,
            .block_table = call.block_table,
            .lengths = call.lengths,
            .lengths_are_cumulative = call.lengths_are_cumulative,
            .indices = call.indices,
            .extra_indices = call.extra_indices,
            .attn_sink = call.attn_sink,
            .descale_q = call.descale_q,
            .descale_k = call.descale_k,
            .out = call.out,
            .lse = call.lse,
            .workspace = call.workspace};
}

LatentCall latent_call(const core::SparsePrefillCall& call) {
    const PrefillShape& shape = call.plan->shape;
    return {.shape = sparse_prefill_as_decode(shape),
            .num_workers = call.plan->num_workers,
            .strides = {.q_token = call.q_token,
                        .q_head = call.q_head,
                        .out_token = call.out_token,
                        .out_head = call.out_head,
                        .lse_head = call.lse_head,
                        .lse_token = call.lse_token},
            .softmax_scale = call.softmax_scale,
            // The rows lie as one page.
            .cache = {.data = static_cast<const std::uint8_t*>(call.kv),
                      .num_pages = 1,
                      .page_size = shape.total_kv,
                      .page_bytes = 0,
                      .token_bytes = call.kv_token * 2,
                      .head_bytes = 0},
            .extra = {},
            .q = call.q,
            .block_table = nullptr,
            .lengths = nullptr,
            .lengths_are_cumulative = false,
            .indices = call.indices,
            .extra_indices = {},
            .attn_sink = call.attn_sink,
            .descale_q = {},
            .descale_k = {},
            .out = call.out,
            .lse = call.lse,
            .max_logits = call.max_logits,
            .max_head = call.max_head,
            .max_token = call.max_token,
            .workspace = call.workspace};
}

DecodeShape sparse_prefill_as_decode(const PrefillShape& shape) {
    return {.b = 1,
            .s_q = shape.total_q,
            .h_q = shape.h_q,
            .h_kv = shape.h_kv,
            .d_qk = shape.d_qk,
            .d_v = shape.d_v,
            .page_size = shape.total_kv,
            .dtype = shape.dtype,
            .format = cache_format_16bit(shape.dtype),
            .topk = shape.topk};
}

core::RowTiling latent_tiling(const DecodeShape& shape) {
    const int heads = static_cast<int>(shape.h_q / shape.h_kv);
    const int tokens = static_cast<int>(shape.s_q);
    if (shape.topk == 0) return core::make_row_tiling(heads, tokens, kRowTile);
    core::RowTiling tiling = core::make_row_tiling(heads, 1, kRowTile);
    tiling.s_q = tokens;
    tiling.tiles = tiling.tiles_per_token * tokens;
    return tiling;
}

}  // namespace flashmla::backends::cpu
