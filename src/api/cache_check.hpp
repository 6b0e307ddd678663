// Checks that the cache operations share. Each gives one error that names the argument, what it got and what it
// accepts.
#pragma once

#include <cstdint>

#include "api/tensor_check.hpp"
#include "core/cache_calls.hpp"
#include "flashmla/status.hpp"

namespace flashmla::api {

// A cache (num_pages, page_size, 1, record) whose records hold d_qk values. `access` forbids overlap where the cache is
// written. The scale is that of fp8_flat, named `scale_name`; the other formats do not look at it.
struct CacheRules {
    const char* name = "cache";
    Overlap overlap = Overlap::kAllowed;
    const char* scale_name = "cache_scale";
    double scale = 1;
};

Result<core::CacheView> check_cache(const TensorView& cache, std::int64_t d_qk, const CacheRules& rules);

// Rows (n, width) of bf16, fp16 or fp32.
Result<core::RowsView> check_rows(const char* name, TensorView rows, std::initializer_list<Axis> axes, Overlap overlap);

// Ids or positions, int32 or int64, of rank 1.
Result<core::IndexView> check_index(const char* name, TensorView index, Axis axis);

Status check_index_dtype(const char* name, const TensorView& index);

// Ids in host memory: `got` at `place` must lie below `limit`.
Status index_complaint(const char* name, std::int64_t got, const std::string& place, std::int64_t limit,
                       const char* limit_name);

// kUnsupported for caches outside the CPU's memory.
Status check_cache_device(const char* operation, Device device);

}  // namespace flashmla::api
