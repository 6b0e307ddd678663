#include "api/check.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "api/tensor_check.hpp"
#include "plan/catalog.hpp"
#include "plan/shape.hpp"
#include "plan/workspace.hpp"

namespace flashmla::api {
namespace {

// The first complaint of a list; every check is cheap, so all of them run.
Status first_error(std::initializer_list<Status> checks) {
    for (const Status& status : checks) {
        if (!status.ok()) return status;
    }
    return {};
}

Status check_ranks(const DecodeArgs& args) {
    if (args.cache_seqlens.rank != 0 && args.cu_seqlens_k.rank != 0) {
        return invalid_argument("cache_seqlens, cu_seqlens_k: got both, wanted exactly one (the other with rank 0)");
    }
    if (args.cache_seqlens.rank == 0 && args.cu_seqlens_k.rank == 0) {
        return invalid_argument("cache_seqlens, cu_seqlens_k: got neither, wanted exactly one");
    }
    return first_error({
        check_rank("q", args.q, "(b, s_q, h_q, d_qk)", 4),
        check_rank("k_cache", args.k_cache, "(num_pages, page_size, h_kv, d_qk)", 4),
        check_rank("block_table", args.block_table, "(b, max_pages)", 2),
        args.cache_seqlens.rank != 0 ? check_rank("cache_seqlens", args.cache_seqlens, "(b,)", 1) : Status{},
        args.cu_seqlens_k.rank != 0 ? check_rank("cu_seqlens_k", args.cu_seqlens_k, "(b + 1,)", 1) : Status{},
        check_rank("out", args.out, "(b, s_q, h_q, d_v)", 4),
        check_rank("lse", args.lse, "(b, h_q, s_q)", 3),
    });
}

// A double beyond float's range becomes an infinity; NaN stays NaN. Any scale is honoured.
float to_float(double value) {
    constexpr double kMax = std::numeric_limits<float>::max();
    if (std::abs(value) > kMax)
        return value > 0 ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity();
    return static_cast<float>(value);
}

struct NamedTensor {
    const char* name;
    TensorView& view;
    DType dtype;
    const char* why;
    MemoryRules rules;
};

}  // namespace

Result<CheckedDecode> check_decode(const DecodeArgs& given) {
    if (Status status = check_ranks(given); !status.ok()) return status;
    DecodeArgs args = given;  // strides that mean nothing get packed values on the way
    const bool cumulative = args.cu_seqlens_k.rank != 0;
    TensorView& lengths = cumulative ? args.cu_seqlens_k : args.cache_seqlens;
    const char* lengths_name = cumulative ? "cu_seqlens_k" : "cache_seqlens";

    // Sizes come from q, the cache, the table's width and out's last axis; everything else must agree with them.
    DecodeShape shape;
    shape.b = args.q.shape[0];
    shape.s_q = args.q.shape[1];
    shape.h_q = args.q.shape[2];
    shape.d_qk = args.q.shape[3];
    shape.page_size = args.k_cache.shape[1];
    shape.h_kv = args.k_cache.shape[2];
    shape.max_pages = args.block_table.shape[1];
    shape.d_v = args.out.shape[3];
    shape.dtype = args.q.dtype;
    shape.causal = args.causal;
    if (Status status = plan::check_shape(shape); !status.ok()) {
        const std::string& message = status.message();
        return invalid_argument("q " + shape_text(args.q) + ", k_cache " + shape_text(args.k_cache) + ", out " +
                                shape_text(args.out) + ": " + message);
    }
    if (Status status = first_error({
            check_shape("k_cache", args.k_cache, {{"num_pages"}, {"page_size"}, {"h_kv"}, {"d_qk", shape.d_qk}}),
            check_shape("block_table", args.block_table, {{"b", shape.b}, {"max_pages"}}),
            cumulative ? check_shape("cu_seqlens_k", lengths, {{"b + 1", shape.b + 1}})
                       : check_shape("cache_seqlens", lengths, {{"b", shape.b}}),
            check_shape("out", args.out, {{"b", shape.b}, {"s_q", shape.s_q}, {"h_q", shape.h_q}, {"d_v"}}),
            check_shape("lse", args.lse, {{"b", shape.b}, {"h_q", shape.h_q}, {"s_q", shape.s_q}}),
        });
        !status.ok()) {
        return status;
    }

    constexpr MemoryRules kInput{};
    constexpr MemoryRules kOut{LastAxis::kContiguous, Overlap::kForbidden};
    constexpr MemoryRules kLse{LastAxis::kAnyStride, Overlap::kForbidden};
    const NamedTensor tensors[] = {
        {"q", args.q, shape.dtype, "", kInput},
        {"k_cache", args.k_cache, shape.dtype, ", q's dtype", kInput},
        {"block_table", args.block_table, DType::kInt32, "", kInput},
        {lengths_name, lengths, DType::kInt32, "", kInput},
        {"out", args.out, shape.dtype, ", q's dtype", kOut},
        {"lse", args.lse, DType::kFloat32, "", kLse},
    };
    for (const NamedTensor& tensor : tensors) {
        if (Status status = check_dtype(tensor.name, tensor.view, tensor.dtype, tensor.why); !status.ok())
            return status;
        if (Status status = check_device(tensor.name, tensor.view, args.q.device); !status.ok()) return status;
        if (Status status = check_memory(tensor.name, tensor.view, tensor.rules); !status.ok()) return status;
    }

    const auto& q = args.q.stride;
    const auto& k = args.k_cache.stride;
    const auto& out = args.out.stride;
    const auto& lse = args.lse.stride;
    CheckedDecode checked;
    checked.shape = shape;
    checked.device = args.q.device;
    checked.call = {
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
        .softmax_scale = to_float(args.has_softmax_scale ? args.softmax_scale : 1.0 / std::sqrt(double(shape.d_qk))),
        .num_pages = args.k_cache.shape[0],
        .q = args.q.data,
        .k_cache = args.k_cache.data,
        .block_table = static_cast<const std::int32_t*>(args.block_table.data),
        .lengths = static_cast<const std::int32_t*>(lengths.data),
        .lengths_are_cumulative = cumulative,
        .out = args.out.data,
        .lse = static_cast<float*>(args.lse.data),
        .workspace = nullptr,
        .stream = nullptr,
    };
    return checked;
}

}  // namespace flashmla::api
