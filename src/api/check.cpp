#include "api/check.hpp"

#include <cstdint>
#include <string>

#include "api/tensor_check.hpp"
#include "core/kv_format.hpp"
#include "plan/shape.hpp"

namespace flashmla::api {
namespace {

Status check_rank_if_given(const char* tensor, const TensorView& view, const char* axes, int rank) {
    return given(view) ? check_rank(tensor, view, axes, rank) : Status{};
}

Status check_absent(const char* tensor, const TensorView& view, const char* why) {
    if (!given(view)) return {};
    return invalid_argument(std::string(tensor) + ": got one " + why);
}

Status check_dense_ranks(const DecodeArgs& args) {
    if (given(args.cache_seqlens) && given(args.cu_seqlens_k)) {
        return invalid_argument("cache_seqlens, cu_seqlens_k: got both, wanted exactly one (the other with rank 0)");
    }
    if (!given(args.cache_seqlens) && !given(args.cu_seqlens_k)) {
        return invalid_argument("cache_seqlens, cu_seqlens_k: got neither, wanted exactly one");
    }
    constexpr const char* kSparseOnly = "without indices, wanted none (rank 0), because only sparse decode reads it";
    return first_error({
        check_rank("block_table", args.block_table, "(b, max_pages)", 2),
        check_rank_if_given("cache_seqlens", args.cache_seqlens, "(b,)", 1),
        check_rank_if_given("cu_seqlens_k", args.cu_seqlens_k, "(b + 1,)", 1),
        check_absent("topk_length", args.topk_length, kSparseOnly),
        check_absent("extra_k_cache", args.extra_k_cache, kSparseOnly),
        check_absent("extra_indices", args.extra_indices, kSparseOnly),
        check_absent("extra_topk_length", args.extra_topk_length, kSparseOnly),
    });
}

// (b,) or (b, s_q).
Status check_length_rank(const char* tensor, const TensorView& view) {
    return check_rank(tensor, view, "(b, s_q), or rank 1: (b,)", view.rank == 1 ? 1 : 2);
}

Status check_sparse_ranks(const DecodeArgs& args) {
    constexpr const char* kDenseOnly =
        "together with indices, wanted none (rank 0), because the indices decide what is read";
    constexpr const char* kExtraOnly = "without extra_k_cache, wanted none (rank 0)";
    const bool extra = given(args.extra_k_cache);
    return first_error({
        check_rank("indices", args.indices, "(b, s_q, topk)", 3),
        check_absent("block_table", args.block_table, kDenseOnly),
        check_absent("cache_seqlens", args.cache_seqlens, kDenseOnly),
        check_absent("cu_seqlens_k", args.cu_seqlens_k, kDenseOnly),
        given(args.topk_length) ? check_length_rank("topk_length", args.topk_length) : Status{},
        extra ? check_rank("extra_k_cache", args.extra_k_cache, "(num_pages, page_size, h_kv, record)", 4) : Status{},
        extra ? check_rank("extra_indices", args.extra_indices, "(b, s_q, extra_topk)", 3)
              : check_absent("extra_indices", args.extra_indices, kExtraOnly),
        extra ? (given(args.extra_topk_length) ? check_length_rank("extra_topk_length", args.extra_topk_length)
                                               : Status{})
              : check_absent("extra_topk_length", args.extra_topk_length, kExtraOnly),
    });
}

Status check_ranks(const DecodeArgs& args) {
    if (Status status = given(args.indices) ? check_sparse_ranks(args) : check_dense_ranks(args); !status.ok())
        return status;
    return first_error({
        check_rank("q", args.q, "(b, s_q, h_q, d_qk)", 4),
        check_rank("k_cache", args.k_cache, "(num_pages, page_size, h_kv, record)", 4),
        check_rank_if_given("attn_sink", args.attn_sink, "(h_q,)", 1),
        check_rank_if_given("descale_q", args.descale_q, "(1,) or (b,)", 1),
        check_rank_if_given("descale_k", args.descale_k, "(1,) or (b,)", 1),
        check_rank("out", args.out, "(b, s_q, h_q, d_v)", 4),
        check_rank("lse", args.lse, "(b, h_q, s_q)", 3),
    });
}

// Sizes come from q, the caches, the table's or the lists' width and out's last axis; everything else must agree.
DecodeShape shape_of(const DecodeArgs& args, CacheFormat format) {
    DecodeShape shape;
    shape.b = args.q.shape[0];
    shape.s_q = args.q.shape[1];
    shape.h_q = args.q.shape[2];
    shape.d_qk = args.q.shape[3];
    shape.page_size = args.k_cache.shape[1];
    shape.h_kv = args.k_cache.shape[2];
    shape.d_v = args.out.shape[3];
    shape.dtype = args.q.dtype;
    shape.format = format;
    shape.causal = args.causal;
    shape.attn_sink = given(args.attn_sink);
    if (!given(args.indices)) {
        shape.max_pages = args.block_table.shape[1];
        return shape;
    }
    shape.topk = args.indices.shape[2];
    if (given(args.extra_k_cache)) {
        shape.extra_topk = args.extra_indices.shape[2];
        shape.extra_page_size = args.extra_k_cache.shape[1];
    }
    return shape;
}

// Lists of width 0 have no meaning, but a width of 0 in a DecodeShape has another.
Status check_list_width(const char* tensor, const TensorView& view) {
    if (!given(view) || view.shape[2] > 0) return {};
    return invalid_argument(std::string(tensor) + ": got shape " + shape_text(view) +
                            ", wanted at least one index a query token");
}

Status check_length_shape(const char* tensor, const TensorView& view, const DecodeShape& shape) {
    if (!given(view)) return {};
    return view.rank == 1 ? check_shape(tensor, view, {{"b", shape.b}})
                          : check_shape(tensor, view, {{"b", shape.b}, {"s_q", shape.s_q}});
}

Status check_descale(const char* tensor, const TensorView& view, const DecodeShape& shape, bool applies) {
    if (!given(view)) return {};
    if (!applies) {
        return invalid_argument(std::string(tensor) + ": got one with q of " + name(shape.dtype) + " and a cache of " +
                                name(shape.format) +
                                ", wanted none (rank 0): it says what a float8_e4m3fn value is worth");
    }
    return view.shape[0] == 1 ? Status{} : check_shape(tensor, view, {{"b", shape.b}});
}

Status check_extents(const DecodeArgs& args, const DecodeShape& shape) {
    const std::int64_t record = args.k_cache.shape[3];
    Status status = first_error({
        check_shape("k_cache", args.k_cache, {{"num_pages"}, {"page_size"}, {"h_kv"}, {"record", record}}),
        check_shape("out", args.out, {{"b", shape.b}, {"s_q", shape.s_q}, {"h_q", shape.h_q}, {"d_v"}}),
        check_shape("lse", args.lse, {{"b", shape.b}, {"h_q", shape.h_q}, {"s_q", shape.s_q}}),
        shape.attn_sink ? check_shape("attn_sink", args.attn_sink, {{"h_q", shape.h_q}}) : Status{},
        check_descale("descale_q", args.descale_q, shape, shape.dtype == DType::kFloat8E4m3),
        check_descale("descale_k", args.descale_k, shape, shape.format == CacheFormat::kFp8Flat),
    });
    if (!status.ok()) return status;
    if (shape.topk == 0) {
        return first_error({
            check_shape("block_table", args.block_table, {{"b", shape.b}, {"max_pages"}}),
            given(args.cu_seqlens_k) ? check_shape("cu_seqlens_k", args.cu_seqlens_k, {{"b + 1", shape.b + 1}})
                                     : check_shape("cache_seqlens", args.cache_seqlens, {{"b", shape.b}}),
        });
    }
    status = first_error({
        check_shape("indices", args.indices, {{"b", shape.b}, {"s_q", shape.s_q}, {"topk"}}),
        check_length_shape("topk_length", args.topk_length, shape),
    });
    if (!status.ok() || shape.extra_topk == 0) return status;
    return first_error({
        check_shape("extra_k_cache", args.extra_k_cache,
                    {{"num_pages"}, {"page_size"}, {"h_kv", shape.h_kv}, {"record", record}}),
        check_shape("extra_indices", args.extra_indices, {{"b", shape.b}, {"s_q", shape.s_q}, {"extra_topk"}}),
        check_length_shape("extra_topk_length", args.extra_topk_length, shape),
    });
}

// An fp8_584 page has a layout of its own; the strides inside it only repeat the shape.
Status check_record_strides(const char* tensor, const TensorView& view, CacheFormat format) {
    if (format != CacheFormat::kFp8_584 || !given(view)) return {};
    if (view.shape[0] == 0 || view.stride[1] == core::kv584::kRecordBytes) return {};
    return invalid_argument(std::string(tensor) + ": got a token stride of " + std::to_string(view.stride[1]) +
                            " bytes, wanted " + std::to_string(core::kv584::kRecordBytes) +
                            " (fp8_584 pages are views with packed tokens; only the page stride is free)");
}

Status check_given_tensors(DecodeArgs& args, const DecodeShape& shape) {
    const bool wide_cache = is_16bit(shape.format);
    const DType cache = wide_cache ? shape.dtype : args.k_cache.dtype;
    const char* as_cache = wide_cache ? kAsQ : ", k_cache's dtype";
    const bool fp8 = shape.dtype == DType::kFloat8E4m3;
    const DType out = fp8 ? DType::kBFloat16 : shape.dtype;
    const Status status = check_tensors({{"q", args.q, shape.dtype},
                                         {"k_cache", args.k_cache, cache, as_cache},
                                         {"block_table", args.block_table, DType::kInt32},
                                         {"cache_seqlens", args.cache_seqlens, DType::kInt32},
                                         {"cu_seqlens_k", args.cu_seqlens_k, DType::kInt32},
                                         {"indices", args.indices, DType::kInt32},
                                         {"topk_length", args.topk_length, DType::kInt32},
                                         {"extra_k_cache", args.extra_k_cache, cache, as_cache},
                                         {"extra_indices", args.extra_indices, DType::kInt32},
                                         {"extra_topk_length", args.extra_topk_length, DType::kInt32},
                                         {"attn_sink", args.attn_sink, DType::kFloat32},
                                         {"descale_q", args.descale_q, DType::kFloat32},
                                         {"descale_k", args.descale_k, DType::kFloat32},
                                         {"out", args.out, out, fp8 ? ", for a float8_e4m3fn q" : kAsQ, kWrittenRows},
                                         {"lse", args.lse, DType::kFloat32, "", kWrittenValues}},
                                        args.q.device);
    if (!status.ok()) return status;
    return first_error({
        check_record_strides("k_cache", args.k_cache, shape.format),
        check_record_strides("extra_k_cache", args.extra_k_cache, shape.format),
    });
}

}  // namespace

Result<CheckedDecode> check_decode(const DecodeArgs& given_args) {
    if (Status status = check_ranks(given_args); !status.ok()) return status;
    DecodeArgs args = given_args;  // strides that mean nothing get packed values on the way
    if (Status status = first_error(
            {check_list_width("indices", args.indices), check_list_width("extra_indices", args.extra_indices)});
        !status.ok()) {
        return status;
    }
    const Result<CacheFormat> format = cache_format_of(args.q.shape[3], args.k_cache);
    if (!format.ok()) return format.status();

    CheckedDecode checked;
    checked.shape = shape_of(args, format.value());
    checked.device = args.q.device;
    // A 16-bit cache of the other dtype is the cache's mistake: check_tensors names it.
    DecodeShape principle = checked.shape;
    if (is_16bit(principle.format)) principle.format = cache_format_16bit(principle.dtype);
    if (Status status = plan::check_shape(principle); !status.ok()) {
        const std::string& message = status.message();
        return invalid_argument("q " + shape_text(args.q) + ", k_cache " + shape_text(args.k_cache) + ", out " +
                                shape_text(args.out) + ": " + message);
    }
    if (Status status = check_extents(args, checked.shape); !status.ok()) return status;
    if (Status status = check_given_tensors(args, checked.shape); !status.ok()) return status;
    checked.call = make_decode_call(args, checked.shape);
    return checked;
}

}  // namespace flashmla::api
