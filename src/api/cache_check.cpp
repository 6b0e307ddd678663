#include "api/cache_check.hpp"

#include <limits>
#include <string>

#include "core/checked.hpp"

namespace flashmla::api {
namespace {

// Of an fp8_584 cache only the page stride describes real bytes: its pages are runs of page_size * 584 bytes.
TensorView real_bytes(const TensorView& cache, CacheFormat format) {
    if (format != CacheFormat::kFp8_584) return cache;
    TensorView pages = cache;
    pages.rank = 2;
    pages.shape = {cache.shape[0], cache.shape[1] * core::kv584::kRecordBytes};
    pages.stride = {cache.stride[0], 1};
    return pages;
}

}  // namespace

Result<core::CacheView> check_cache(const TensorView& cache, std::int64_t d_qk, const CacheRules& rules) {
    if (Status status = check_rank(rules.name, cache, "(num_pages, page_size, 1, record)", 4); !status.ok()) {
        return status;
    }
    if (Status status = check_shape(rules.name, cache, {{"num_pages"}, {"page_size"}, {"h_kv", 1}, {"record"}});
        !status.ok()) {
        return status;
    }
    const std::string named = std::string(rules.name) + ": got ";
    if (cache.shape[1] < 1) return invalid_argument(named + "page_size 0, wanted at least 1");
    if (d_qk < 1 || d_qk > core::kMaxRecordValues) {
        return invalid_argument(named + "records of d_qk = " + std::to_string(d_qk) + " values, wanted 1 to " +
                                std::to_string(core::kMaxRecordValues));
    }
    const Result<CacheFormat> format = cache_format_of(d_qk, cache, rules.name);
    if (!format.ok()) return format.status();
    if (!core::checked_product({cache.shape[0], cache.shape[1], cache.shape[3], 4})) {
        return invalid_argument(named + "shape " + shape_text(cache) + ", wanted a tensor whose size fits 63 bits");
    }
    TensorView bytes = real_bytes(cache, format.value());
    if (Status status = check_memory(rules.name, bytes, {LastAxis::kContiguous, rules.overlap}); !status.ok()) {
        return status;
    }
    const bool flat = format.value() == CacheFormat::kFp8Flat;
    const bool fits =
        rules.scale >= std::numeric_limits<float>::min() && rules.scale <= std::numeric_limits<float>::max();
    if (flat && !fits) {
        return invalid_argument(std::string(rules.scale_name) + ": got " + std::to_string(rules.scale) +
                                ", wanted a positive normal fp32 number");
    }
    const auto element = static_cast<std::int64_t>(size_bytes(cache.dtype));
    return core::CacheView{.format = format.value(),
                           .d_qk = static_cast<int>(d_qk),
                           .num_pages = cache.shape[0],
                           .page_size = cache.shape[1],
                           .page_bytes = bytes.stride[0] * element,
                           .record_bytes = bytes.stride[1] * element,
                           .scale = flat ? static_cast<float>(rules.scale) : 1.0f,
                           .data = static_cast<std::uint8_t*>(cache.data)};
}

Result<core::RowsView> check_rows(const char* name, TensorView rows, std::initializer_list<Axis> axes,
                                  Overlap overlap) {
    if (Status status = check_shape(name, rows, axes); !status.ok()) return status;
    if (rows.dtype != DType::kBFloat16 && rows.dtype != DType::kFloat16 && rows.dtype != DType::kFloat32) {
        return invalid_argument(std::string(name) + ": got dtype " + flashmla::name(rows.dtype) +
                                ", wanted bfloat16, float16 or float32");
    }
    if (Status status = check_memory(name, rows, {LastAxis::kContiguous, overlap}); !status.ok()) return status;
    return core::RowsView{.data = static_cast<std::uint8_t*>(rows.data),
                          .dtype = rows.dtype,
                          .row_bytes = rows.stride[0] * static_cast<std::int64_t>(size_bytes(rows.dtype)),
                          .width = static_cast<int>(rows.shape[1])};
}

Status check_index_dtype(const char* name, const TensorView& index) {
    if (index.dtype == DType::kInt32 || index.dtype == DType::kInt64) return {};
    return invalid_argument(std::string(name) + ": got dtype " + flashmla::name(index.dtype) +
                            ", wanted int32 or int64");
}

Result<core::IndexView> check_index(const char* name, TensorView index, Axis axis) {
    const std::string axes = std::string("(") + axis.name + ",)";
    if (Status status = check_rank(name, index, axes.c_str(), 1); !status.ok()) return status;
    if (Status status = check_shape(name, index, {axis}); !status.ok()) return status;
    if (Status status = check_index_dtype(name, index); !status.ok()) return status;
    if (Status status = check_memory(name, index, {}); !status.ok()) return status;
    return core::IndexView{.data = index.data, .wide = index.dtype == DType::kInt64};
}

Status index_complaint(const char* name, std::int64_t got, const std::string& place, std::int64_t limit,
                       const char* limit_name) {
    return invalid_argument(std::string(name) + ": got " + std::to_string(got) + " at " + place +
                            ", wanted less than " + std::to_string(limit) + " = " + limit_name);
}

Status check_cache_device(const char* operation, Device device) {
    if (device.type == DeviceType::kCpu) return {};
    return unsupported(std::string(operation) + ": no kernel for tensors on " + text(device) +
                       " in this version, which has cpu_" + operation + " for tensors on the cpu");
}

}  // namespace flashmla::api
