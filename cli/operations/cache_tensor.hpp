// Caches of any format among the tensors of a case.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/operations/operation_case.hpp"

namespace flashmla::cli {

inline constexpr float kFlatScale = 0.02F;  // of fp8_flat caches here: normal values then stay far from the limits

// Poison but for what is written later; fp8_584 with the padding of its pages.
TensorView make_cache(Tensors& tensors, CacheFormat format, const CaseShape& shape, std::int64_t pages);
double scale_of(CacheFormat format);

// The same tensor in host memory, with the bytes between its records and pages.
TensorView cache_on_host(Tensors& tensors, const TensorView& cache);

struct CacheContents {
    const CaseShape& shape;
    CacheFormat format;
    std::int64_t rows = 0;
    bool permuted = false;  // otherwise each request of shape.len rows begins a page and fills pages in order
};

struct FilledCache {
    TensorView view;
    std::vector<std::int32_t> slots;  // of each row
    AppendArgs append;                // what wrote it, or writes it when `filled` was not asked for
};

// Rows of random values and the call of append that puts them into a cache; not called yet.
FilledCache plan_cache(Tensors& tensors, const CacheContents& contents);
// The same, appended.
FilledCache fill_cache(Tensors& tensors, const CacheContents& contents, StreamHandle stream);

}  // namespace flashmla::cli
