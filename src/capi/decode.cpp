#include "flashmla/decode.hpp"

#include "capi/device.hpp"
#include "capi/guard.hpp"
#include "capi/plan.hpp"
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
    flashmla_decode_shape c{};
    c.dtype = to_c(kDTypes, shape.dtype);
    c.format = to_c(kFormats, shape.format);
    c.causal = shape.causal ? 1 : 0;
    c.b = shape.b;
    c.s_q = shape.s_q;
    c.h_q = shape.h_q;
    c.h_kv = shape.h_kv;
    c.d_qk = shape.d_qk;
    c.d_v = shape.d_v;
    c.page_size = shape.page_size;
    c.max_pages = shape.max_pages;
    c.topk = shape.topk;
    c.extra_topk = shape.extra_topk;
    c.extra_page_size = shape.extra_page_size;
    return c;
}

Status plan_to_handle(const flashmla_decode_shape* c_shape, const flashmla_device_info* c_device,
                      const flashmla_plan_options* c_options, flashmla_plan** handle) {
    if (handle == nullptr) return null_pointer("plan", "somewhere to write the plan to");
    *handle = nullptr;
    DecodeShape shape;
    DeviceInfo device;
    PlanOptions options;
    if (Status status = read_shape(c_shape, shape); !status.ok()) return status;
    if (Status status = read_device_info(c_device, device); !status.ok()) return status;
    if (Status status = read_options(c_options, options); !status.ok()) return status;
    Result<DecodePlan> plan = plan_decode(shape, device, options);
    if (!plan.ok()) return plan.status();
    *handle = new flashmla_plan{std::move(plan).value()};
    return {};
}

}  // namespace

extern "C" {

flashmla_status flashmla_decode_shape_of(const flashmla_decode_args* args, flashmla_decode_shape* shape) {
    return guarded([&]() -> Status {
        DecodeArgs checked;
        if (Status status = read_args(args, checked); !status.ok()) return status;
        if (Status status = check_struct("shape", shape); !status.ok()) return status;
        const Result<DecodeShape> found = decode_shape(checked);
        if (found.ok()) write_struct(c_shape(found.value()), shape);
        return found.status();
    });
}

flashmla_status flashmla_plan_decode(const flashmla_decode_shape* shape, const flashmla_device_info* device,
                                     const flashmla_plan_options* options, flashmla_plan** plan) {
    return guarded([&] { return plan_to_handle(shape, device, options, plan); });
}

flashmla_status flashmla_run_decode(const flashmla_plan* plan, const flashmla_decode_args* args, void* workspace,
                                    size_t workspace_bytes, flashmla_stream stream) {
    return guarded([&]() -> Status {
        const auto* held = held_plan<DecodePlan>(plan);
        if (held == nullptr) return wrong_plan(plan, "decode");
        DecodeArgs checked;
        if (Status status = read_args(args, checked); !status.ok()) return status;
        return run_decode(*held, checked, workspace, workspace_bytes, stream);
    });
}

flashmla_status flashmla_decode(const flashmla_decode_args* args, const flashmla_plan_options* options,
                                flashmla_stream stream) {
    return guarded([&]() -> Status {
        DecodeArgs checked;
        PlanOptions chosen;
        if (Status status = read_args(args, checked); !status.ok()) return status;
        if (Status status = read_options(options, chosen); !status.ok()) return status;
        return decode(checked, chosen, stream);
    });
}

}  // extern "C"

}  // namespace flashmla::capi
