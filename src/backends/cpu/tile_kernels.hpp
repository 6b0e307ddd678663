// The steps of the kernel that depend on the instruction set, as a table of functions over plain buffers.
//
// A *row tile* is up to kRowTile query rows of one KV head; it is stored as *panels* of `panel_rows` rows, the last one
// narrower when that is enough. Inside a panel the row is the fastest index: lanes of a vector are rows, so softmax and
// rescaling need no sideways operation, and every row sees the same arithmetic whatever lies beside it.
#pragma once

#include <cstdint>

#include "backends/cpu/config.hpp"
#include "core/cpu_isa.hpp"
#include "flashmla/cache_format.hpp"
#include "flashmla/types.hpp"

namespace flashmla::backends::cpu {

struct TileShape {
    int d_qk = 0;
    int d_v = 0;
    DType dtype = DType::kBFloat16;               // of the queries and the result
    CacheFormat format = CacheFormat::kBFloat16;  // of the keys
    float scale_log2 = 0;  // |softmax_scale| * log2(e): weights are 2^(scale_log2 * (score - max)), scores unscaled
    bool negate_queries = false;  // the sign of softmax_scale
    int rows = 0;                 // rows of the tile that exist; buffers hold whole vectors of rows
    int value_offset = 0;         // where a value starts in its key's row of the key buffer; 0 = a part of the key
};

// One tile of the backward of dense prefill (gradients.hpp): resident rows are lanes, streamed rows are in the key
// buffer, each with the columns that meet in scores (d_qk) and in products of dout and values (d_v). Queries bring q
// and dout, keys bring k and v; one side is resident, the other streamed.
struct GradientArgs {
    int d_qk = 0;
    int d_v = 0;
    float scale = 1;
    int rows = 0;                        // resident ones that exist
    const float* resident_qk = nullptr;  // from pack_queries
    const float* resident_v = nullptr;
    const float* streamed = nullptr;  // from load_pairs
    int count = 0;                    // streamed rows
    bool queries_streamed = false;
    const float* lse = nullptr;    // [queries, padded when resident] natural
    const float* delta = nullptr;  // [queries] dout . out - dlse
    const int* limits = nullptr;   // [queries] keys [0, limits) of the tile are seen; rising when queries are streamed
    float* gradient_qk = nullptr;  // panels of [d_qk][rows of the panel], added to, without the scale
    float* gradient_v = nullptr;   // the same for d_v; null when queries are resident
    float* scratch = nullptr;      // kScratchFloats
};

// Rows times a weight matrix, for absorb and project: out[row][column] = sum over depth of x[row][depth] * w.
struct ProjectArgs {
    DType dtype = DType::kBFloat16;  // of all three; fp32 too
    const void* x = nullptr;
    std::int64_t x_stride = 0;  // elements between rows
    const void* weight = nullptr;
    std::int64_t weight_stride = 0;
    bool weight_by_column = false;  // weight[column * stride + depth] instead of weight[depth * stride + column]
    void* out = nullptr;
    std::int64_t out_stride = 0;
    std::int64_t rows = 0;
    std::int64_t depth = 0;
    int columns = 0;           // at most kProjectColumns
    float* scratch = nullptr;  // kProjectFloats
};

// Softmax over some keys, not yet normalised: out = sum 2^(scale_log2 * (score - max)) * value.
struct Partial {
    float* out = nullptr;  // panels of [d_v][rows of the panel]
    float* max = nullptr;  // [rows] largest q.k, unscaled; -inf before the first key
    float* sum = nullptr;  // [rows] sum of the weights
};

// Where the records of a tile's keys lie (core/kv_record.hpp).
struct KeyRows {
    const std::uint8_t* values[kKeyTile];
    const std::uint8_t* scales[kKeyTile];
    const std::uint8_t* rope[kKeyTile];
};

struct AttendArgs {
    const float* queries = nullptr;  // from pack_queries
    const float* keys = nullptr;     // from load_keys
    const int* limits =
        nullptr;  // [rows, padded] row r sees keys [0, limits[r]) of this tile; may lie outside [0, key_count]
    int key_count = 0;
    float* scratch = nullptr;  // kScratchFloats
    Partial partial;           // updated
    // The key rows that load_keys gets next: fetched into the cache on the way.
    const std::uint8_t* const* next_rows = nullptr;
    int next_count = 0;
};

// Buffer sizes in floats (32-bit units), the largest of all instruction sets.
inline constexpr int kScratchFloats = 2 * 64 * 64;
inline constexpr int kKeyBufferFloats = 64 * 592;
// Project: rows and columns of a block of the product, and the depth that is added up at a time.
inline constexpr int kProjectRows = 64;
inline constexpr int kProjectColumns = 64;
inline constexpr int kProjectDepth = 576;
inline constexpr int kProjectStride = 592;  // of the converted rows: an odd number of cache lines
inline constexpr int kProjectFloats =
    kProjectRows * kProjectStride + kProjectDepth * kProjectColumns + kProjectRows * kProjectColumns;

struct TileKernels {
    int lanes = 0;
    int panel_rows = 0;
    void (*pack_queries)(const TileShape&, const std::uint16_t* const* rows, float* packed) = nullptr;
    void (*load_keys)(const TileShape&, const KeyRows& rows, int count, float* buffer) = nullptr;
    // The same for 16-bit values that are no part of their keys; value_offset is d_qk.
    void (*load_pairs)(const TileShape&, const std::uint16_t* const* keys, const std::uint16_t* const* values,
                       int count, float* buffer) = nullptr;
    void (*attend)(const TileShape&, const AttendArgs&) = nullptr;
    // into = into merged with from.
    void (*fold)(const TileShape&, const Partial& into, const Partial& from) = nullptr;
    // Normalises, multiplies by factors[r] and rounds; rows with visible[r] == 0 become zeros.
    void (*store)(const TileShape&, const Partial&, const int* visible, const float* factors,
                  std::uint16_t* const* out_rows) = nullptr;
    // row_ops.hpp: bf16, fp16 and fp32 rows of any length; the fp32 side holds whole vectors.
    void (*add_weighted_row)(DType, const void* row, std::int64_t count, float weight, float* sums) = nullptr;
    void (*store_scaled_row)(DType, const float* sums, std::int64_t count, float factor, void* row) = nullptr;
    // Of two 16-bit rows of whole vectors, in fp32.
    float (*dot_rows)(DType, const std::uint16_t* a, const std::uint16_t* b, int count) = nullptr;
    void (*project)(const ProjectArgs&) = nullptr;
    void (*add_gradients)(const GradientArgs&) = nullptr;  // null on paths whose units are pairs
};

// The table of one instruction set; null when it is not compiled in.
const TileKernels* portable_kernels();
const TileKernels* avx2_kernels();
const TileKernels* avx512_kernels();
const TileKernels* avx512_bf16_kernels();  // for bf16 values (product_type)

}  // namespace flashmla::backends::cpu
