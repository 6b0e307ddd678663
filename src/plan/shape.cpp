#include "plan/shape.hpp"

#include <limits>
#include <span>
#include <string>

#include "core/kv_format.hpp"

namespace flashmla::plan {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();

Status check_range(const char* what, std::int64_t got, std::int64_t low, std::int64_t high) {
    if (got >= low && got <= high) return {};
    return invalid_argument(std::string(what) + ": got " + std::to_string(got) + ", wanted " + std::to_string(low) +
                            " to " + std::to_string(high));
}

struct Range {
    const char* what;
    std::int64_t got, low, high;
};

Status check_ranges(std::span<const Range> ranges) {
    for (const Range& range : ranges) {
        if (Status status = check_range(range.what, range.got, range.low, range.high); !status.ok()) return status;
    }
    return {};
}

Status check_heads(std::int64_t h_q, std::int64_t h_kv) {
    if (h_q % h_kv == 0) return {};
    return invalid_argument("h_q: got " + std::to_string(h_q) +
                            ", wanted a multiple of h_kv = " + std::to_string(h_kv));
}

Status check_dtype(DType dtype) {
    if (dtype == DType::kBFloat16 || dtype == DType::kFloat16) return {};
    return invalid_argument(std::string("dtype: got ") + name(dtype) + ", wanted bfloat16 or float16");
}

Status check_lists(const DecodeShape& shape) {
    if (shape.topk > 0 && shape.causal) {
        return invalid_argument(
            "causal: got true together with indices, wanted false, because the indices decide what a query token sees");
    }
    if (shape.topk == 0 && shape.extra_topk > 0) {
        return invalid_argument("extra_topk: got " + std::to_string(shape.extra_topk) +
                                " without topk, wanted 0: an extra cache belongs to sparse decode");
    }
    return check_range("topk + extra_topk", shape.topk + shape.extra_topk, 0, kMaxInt);
}

// The formats that queries of each dtype attend to, and what a packed record fixes.
Status check_format(const DecodeShape& shape) {
    const bool fp8 = shape.dtype == DType::kFloat8E4m3;
    if (Status status = check_dtype(shape.dtype); !fp8 && !status.ok()) return status;
    const auto refused = [&](const char* wanted) {
        return invalid_argument(std::string("format: got a cache of ") + name(shape.format) + " with queries of " +
                                name(shape.dtype) + ", (d_qk, d_v) (" + std::to_string(shape.d_qk) + ", " +
                                std::to_string(shape.d_v) + "), h_kv " + std::to_string(shape.h_kv) + ", wanted " +
                                wanted);
    };
    if (fp8 && shape.format != CacheFormat::kFp8Flat) return refused("fp8_flat for float8_e4m3fn queries");
    switch (shape.format) {
        case CacheFormat::kBFloat16:
        case CacheFormat::kFloat16:
            return shape.format == cache_format_16bit(shape.dtype) ? Status{} : refused("the queries' dtype");
        case CacheFormat::kFp8Flat: return {};
        case CacheFormat::kFp8_656:
            return shape.d_qk == core::kv656::kDimQk && shape.h_kv == 1 ? Status{} : refused("d_qk 576 and h_kv 1");
        case CacheFormat::kFp8_584:
            return shape.d_qk == core::kv584::kDimQk && shape.h_kv == 1 ? Status{} : refused("d_qk 512 and h_kv 1");
    }
    return refused("one of bf16, fp16, fp8_flat, fp8_656, fp8_584");
}

// Of operations over latents.
Status check_value_width(std::int64_t d_qk, std::int64_t d_v) {
    if (d_v <= d_qk) return {};
    return invalid_argument("d_v: got " + std::to_string(d_v) + ", wanted at most d_qk = " + std::to_string(d_qk) +
                            ", because a value is the first columns of its cache row");
}

}  // namespace

Status check_shape(const DecodeShape& shape) {
    const bool extra = shape.extra_topk > 0;
    const Range ranges[] = {
        {"b", shape.b, 0, kMaxInt},
        {"s_q", shape.s_q, 1, kMaxRowsPerRequest},
        {"h_q", shape.h_q, 1, kMaxRowsPerRequest},
        {"h_kv", shape.h_kv, 1, kMaxRowsPerRequest},
        {"d_qk", shape.d_qk, 1, kMaxInt},
        {"d_v", shape.d_v, 1, kMaxInt},
        {"page_size", shape.page_size, 1, kMaxInt},
        {"max_pages", shape.max_pages, 0, kMaxInt},
        {"topk", shape.topk, 0, kMaxInt},
        {"extra_topk", shape.extra_topk, 0, kMaxInt},
        {"extra_page_size", shape.extra_page_size, extra ? 1 : 0, extra ? kMaxInt : 0},
    };
    if (Status status = check_ranges(ranges); !status.ok()) return status;
    if (Status status = check_heads(shape.h_q, shape.h_kv); !status.ok()) return status;
    if (Status status = check_value_width(shape.d_qk, shape.d_v); !status.ok()) return status;
    if (Status status = check_format(shape); !status.ok()) return status;
    if (Status status = check_lists(shape); !status.ok()) return status;
    const std::int64_t rows = shape.s_q * shape.h_q;  // both at most 2^30
    if (Status status = check_range("s_q * h_q", rows, 1, kMaxRowsPerRequest); !status.ok()) return status;
    return check_range("b * s_q * h_q", shape.b * rows, 0, kMaxRows);
}

Status check_shape(const PrefillShape& shape) {
    const bool sparse = shape.operation == Operation::kSparsePrefill;
    if (!sparse && shape.operation != Operation::kDensePrefill && shape.operation != Operation::kDensePrefillBackward) {
        return invalid_argument(std::string("operation: got ") + name(shape.operation) +
                                ", wanted dense_prefill, dense_prefill_backward or sparse_prefill");
    }
    // Cumulative lengths are int32, hence total_q and total_kv.
    const Range ranges[] = {
        {"b", shape.b, sparse ? 1 : 0, sparse ? 1 : kMaxInt},
        {"total_q", shape.total_q, 0, kMaxInt},
        {"total_kv", shape.total_kv, 0, kMaxInt},
        {"max_seqlen_q", shape.max_seqlen_q, 0, kMaxInt},
        {"max_seqlen_kv", shape.max_seqlen_kv, 0, kMaxInt},
        {"h_q", shape.h_q, 1, kMaxRowsPerRequest},
        {"h_kv", shape.h_kv, 1, kMaxRowsPerRequest},
        {"d_qk", shape.d_qk, 1, kMaxInt},
        {"d_v", shape.d_v, 1, kMaxInt},
        {"topk", shape.topk, sparse ? 1 : 0, sparse ? kMaxInt : 0},
    };
    if (Status status = check_ranges(ranges); !status.ok()) return status;
    if (Status status = check_heads(shape.h_q, shape.h_kv); !status.ok()) return status;
    if (Status status = check_dtype(shape.dtype); !status.ok()) return status;
    if (sparse) {
        if (Status status = check_value_width(shape.d_qk, shape.d_v); !status.ok()) return status;
    }
    if (sparse && shape.causal) {
        return invalid_argument("causal: got true, wanted false: in sparse prefill the indices decide");
    }
    const std::int64_t rows = shape.max_seqlen_q * shape.h_q;  // of a request; both are at most 2^31
    if (Status status = check_range("max_seqlen_q * h_q", rows, 0, kMaxRowsPerRequest); !status.ok()) return status;
    // The rows of a sparse call are those of one request.
    const std::int64_t most_rows = sparse ? kMaxRowsPerRequest : kMaxRows;
    return check_range("total_q * h_q", shape.total_q * shape.h_q, 0, most_rows);
}

}  // namespace flashmla::plan
