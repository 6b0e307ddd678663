// Cache operations after their checks: what api hands to a backend. Every index has been checked where the host can
// read it.
#pragma once

#include <cstdint>

#include "core/kv_record.hpp"
#include "flashmla/kv_cache.hpp"

namespace flashmla::core {

// Ids or positions, 32 or 64 bits wide.
struct IndexView {
    const void* data = nullptr;
    bool wide = false;  // int64

    std::int64_t operator[](std::int64_t i) const {
        return wide ? static_cast<const std::int64_t*>(data)[i] : static_cast<const std::int32_t*>(data)[i];
    }
};

// Rows of `width` contiguous values.
struct RowsView {
    std::uint8_t* data = nullptr;
    DType dtype = DType::kBFloat16;
    std::int64_t row_bytes = 0;  // from one row to the next
    int width = 0;

    std::uint8_t* row(std::int64_t i) const { return data + i * row_bytes; }
};

struct AppendCall {
    CacheView cache;
    std::int64_t tokens = 0;
    RowsView latent;
    RowsView rope;  // width 0: none
    IndexView slots;
    IndexView positions;  // null data: the rope part is stored as it comes
    RowsView cos_sin;     // fp32, a row a position
    RotaryStyle style = RotaryStyle::kInterleaved;
    bool power_of_two = true;
    int max_threads = 1;
};

struct GatherCall {
    CacheView cache;
    RowsView out;
    std::int64_t rows = 0;
    IndexView slots;  // null data: rows by block table
    const std::int32_t* block_table = nullptr;
    std::int64_t table_stride = 0;
    const std::int32_t* cu_seqlens = nullptr;
    std::int64_t requests = 0;
    int max_threads = 1;
};

struct CopyPagesCall {
    CacheView source;
    CacheView destination;
    IndexView pairs;               // source page, destination page
    std::int64_t pair_stride = 2;  // elements from one pair to the next
    std::int64_t count = 0;
    int max_threads = 1;
};

struct ConvertCall {
    CacheView source;
    CacheView destination;
    bool power_of_two = true;
    int max_threads = 1;
};

// Records wider than this are refused: kernels keep one in fp32 on the stack.
inline constexpr int kMaxRecordValues = 4096;

}  // namespace flashmla::core
