#include "plan/shape.hpp"

#include <limits>
#include <string>

#include "core/checked.hpp"

namespace flashmla::plan {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();

Status check_range(const char* what, std::int64_t got, std::int64_t low, std::int64_t high) {
    if (got >= low && got <= high) return {};
    return invalid_argument(std::string(what) + ": got " + std::to_string(got) + ", wanted " + std::to_string(low) +
                            " to " + std::to_string(high));
}

}  // namespace

Status check_shape(const DecodeShape& shape) {
    const struct {
        const char* what;
        std::int64_t got, low, high;
    } ranges[] = {
        {"b", shape.b, 0, kMaxInt},
        {"s_q", shape.s_q, 1, kMaxRowsPerRequest},
        {"h_q", shape.h_q, 1, kMaxRowsPerRequest},
        {"h_kv", shape.h_kv, 1, kMaxRowsPerRequest},
        {"d_qk", shape.d_qk, 1, kMaxInt},
        {"d_v", shape.d_v, 1, kMaxInt},
        {"page_size", shape.page_size, 1, kMaxInt},
        {"max_pages", shape.max_pages, 0, kMaxInt},
    };
    for (const auto& range : ranges) {
        if (Status status = check_range(range.what, range.got, range.low, range.high); !status.ok()) return status;
    }
    if (shape.h_q % shape.h_kv != 0) {
        return invalid_argument("h_q: got " + std::to_string(shape.h_q) +
                                ", wanted a multiple of h_kv = " + std::to_string(shape.h_kv));
    }
    if (shape.d_v > shape.d_qk) {
        return invalid_argument("d_v: got " + std::to_string(shape.d_v) + ", wanted at most d_qk = " +
                                std::to_string(shape.d_qk) + ", because a value is the first columns of its cache row");
    }
    if (shape.dtype != DType::kBFloat16 && shape.dtype != DType::kFloat16) {
        return invalid_argument(std::string("dtype: got ") + name(shape.dtype) + ", wanted bfloat16 or float16");
    }
    const std::int64_t rows = shape.s_q * shape.h_q;  // both at most 2^30
    if (Status status = check_range("s_q * h_q", rows, 1, kMaxRowsPerRequest); !status.ok()) return status;
    return check_range("b * s_q * h_q", shape.b * rows, 0, kMaxRows);
}

}  // namespace flashmla::plan
