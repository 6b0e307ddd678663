#include "flashmla/decode.hpp"

#include "capi/planned_operation.hpp"
#include "capi/reader.hpp"
#include "flashmla/c/decode.h"

namespace flashmla::capi {

namespace {

Status read_args(const flashmla_decode_args* given, DecodeArgs& args) {
    Reader read;
    const auto c = read.structure("args", given);
    read.reserved("args.reserved", c.reserved);
    read.flag("causal", c.causal, args.causal);
    read.flag("has_softmax_scale", c.has_softmax_scale, args.has_softmax_scale);
    args.softmax_scale = c.softmax_scale;
    read.tensor("q", c.q, args.q);
    read.tensor("k_cache", c.k_cache, args.k_cache);
    read.tensor("block_table", c.block_table, args.block_table);
    read.tensor("cache_seqlens", c.cache_seqlens, args.cache_seqlens);
    read.tensor("cu_seqlens_k", c.cu_seqlens_k, args.cu_seqlens_k);
    read.tensor("indices", c.indices, args.indices);
    read.tensor("topk_length", c.topk_length, args.topk_length);
    read.tensor("extra_k_cache", c.extra_k_cache, args.extra_k_cache);
    read.tensor("extra_indices", c.extra_indices, args.extra_indices);
    read.tensor("extra_topk_length", c.extra_topk_length, args.extra_topk_length);
    read.tensor("attn_sink", c.attn_sink, args.attn_sink);
    read.tensor("descale_q", c.descale_q, args.descale_q);
    read.tensor("descale_k", c.descale_k, args.descale_k);
    read.tensor("out", c.out, args.out);
    read.tensor("lse", c.lse, args.lse);
    return read.status();
}

Status read_shape(const flashmla_decode_shape* given, DecodeShape& shape) {
    Reader read;
    const auto c = read.structure("shape", given);
    read.dtype("dtype", c.dtype, shape.dtype);
    read.format("format", c.format, shape.dtype, shape.format);
    read.flag("causal", c.causal, shape.causal);
    read.flag("attn_sink", c.attn_sink, shape.attn_sink);
    read.reserved("shape.reserved", c.reserved);
    shape.b = c.b;
    shape.s_q = c.s_q;
    shape.h_q = c.h_q;
    shape.h_kv = c.h_kv;
    shape.d_qk = c.d_qk;
    shape.d_v = c.d_v;
    shape.page_size = c.page_size;
    shape.max_pages = c.max_pages;
    shape.topk = c.topk;
    shape.extra_topk = c.extra_topk;
    shape.extra_page_size = c.extra_page_size;
    return read.status();
}

flashmla_decode_shape c_shape(const DecodeShape& shape) {
    // By position, so that a field that joins the C++ struct cannot be forgotten here.
    const auto& [b, s_q, h_q, h_kv, d_qk, d_v, page_size, max_pages, dtype, format, causal, topk, extra_topk,
                 extra_page_size, attn_sink] = shape;
    flashmla_decode_shape c{};
    c.dtype = to_c(kDTypes, dtype);
    c.format = to_c(kFormats, format);
    c.causal = causal ? 1 : 0;
    c.attn_sink = attn_sink ? 1 : 0;
    c.b = b;
    c.s_q = s_q;
    c.h_q = h_q;
    c.h_kv = h_kv;
    c.d_qk = d_qk;
    c.d_v = d_v;
    c.page_size = page_size;
    c.max_pages = max_pages;
    c.topk = topk;
    c.extra_topk = extra_topk;
    c.extra_page_size = extra_page_size;
    return c;
}

constexpr PlannedOperation<DecodePlan, DecodeArgs, flashmla_decode_args> kOperation = {
    .planner = "decode", .read_args = read_args, .run_planned = run_decode, .plan_and_run = decode};

}  // namespace

extern "C" {

flashmla_status flashmla_decode_shape_of(const flashmla_decode_args* args, flashmla_decode_shape* shape) {
    return shape_of(args, shape, read_args, decode_shape, c_shape);
}

flashmla_status flashmla_plan_decode(const flashmla_decode_shape* shape, const flashmla_device_info* device,
                                     const flashmla_plan_options* options, flashmla_plan** plan) {
    return make_plan<DecodeShape, DecodePlan, flashmla_decode_shape>({shape, device, options, plan}, read_shape,
                                                                     plan_decode);
}

flashmla_status flashmla_run_decode(const flashmla_plan* plan, const flashmla_decode_args* args, void* workspace,
                                    size_t workspace_bytes, flashmla_stream stream) {
    return kOperation.run(plan, args, workspace, workspace_bytes, stream);
}

flashmla_status flashmla_decode(const flashmla_decode_args* args, const flashmla_plan_options* options,
                                flashmla_stream stream) {
    return kOperation.call(args, options, stream);
}

}  // extern "C"

}  // namespace flashmla::capi
