// Writing, reading, moving and converting the pages of a latent cache (kv_cache.hpp). A cache is a tensor
// (num_pages, page_size, 1, record); a slot is page * page_size + token within the page.
#ifndef FLASHMLA_C_KV_CACHE_H
#define FLASHMLA_C_KV_CACHE_H

#include "flashmla/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t flashmla_rotary_style;
enum {
    FLASHMLA_ROTARY_INTERLEAVED = 0,  // pairs (x[2i], x[2i + 1])
    FLASHMLA_ROTARY_HALVES = 1        // pairs (x[i], x[i + d_rope / 2])
};

// Scales of FP8_656 blocks; those of FP8_584 are always powers of two.
typedef int32_t flashmla_scale_rounding;
enum { FLASHMLA_SCALES_POWER_OF_TWO = 0, FLASHMLA_SCALES_EXACT = 1 };

typedef struct flashmla_append_args {
    uint32_t struct_size;
    flashmla_rotary_style rotary_style;
    flashmla_scale_rounding scale_rounding;
    int32_t has_cache_scale;
    double cache_scale;                // FP8_FLAT, used when has_cache_scale is 1; otherwise 1.0
    const flashmla_tensor* latent;     // (n, d_qk - d_rope)
    const flashmla_tensor* rope;       // (n, d_rope), or null
    const flashmla_tensor* cache;      // written
    const flashmla_tensor* slot_ids;   // (n,) int32 or int64; negative = skip
    const flashmla_tensor* positions;  // optional rotary embedding: (n,) int32 or int64, and
    const flashmla_tensor* cos_sin;    //   (max_position, d_rope) fp32
} flashmla_append_args;

FLASHMLA_API flashmla_status flashmla_append(const flashmla_append_args* args, flashmla_stream stream);

typedef struct flashmla_gather_args {
    uint32_t struct_size;
    int32_t has_cache_scale;
    double cache_scale;  // FP8_FLAT, used when has_cache_scale is 1; otherwise 1.0
    int64_t d_qk;        // values of a record
    const flashmla_tensor* cache;
    const flashmla_tensor* slot_ids;     // (n,) int32 or int64, negative = a row of zeros; or
    const flashmla_tensor* block_table;  // (b, max_pages) int32, and
    const flashmla_tensor* cu_seqlens;   //   (b + 1,) int32
    const flashmla_tensor* out;          // written: (n, d_qk)
} flashmla_gather_args;

FLASHMLA_API flashmla_status flashmla_gather(const flashmla_gather_args* args, flashmla_stream stream);

typedef struct flashmla_copy_pages_args {
    uint32_t struct_size;
    uint32_t reserved;
    int64_t d_qk;
    const flashmla_tensor* source;
    const flashmla_tensor* destination;  // written; may be the same cache
    const flashmla_tensor* page_pairs;   // (n, 2) int32 or int64: source page, destination page
} flashmla_copy_pages_args;

FLASHMLA_API flashmla_status flashmla_copy_pages(const flashmla_copy_pages_args* args, flashmla_stream stream);

typedef struct flashmla_convert_args {
    uint32_t struct_size;
    flashmla_scale_rounding scale_rounding;
    int32_t has_source_scale;
    int32_t has_destination_scale;
    double source_scale;  // FP8_FLAT, used when the flag is 1; otherwise 1.0
    double destination_scale;
    int64_t d_qk;
    const flashmla_tensor* source;
    const flashmla_tensor* destination;  // written: every token of every page
} flashmla_convert_args;

FLASHMLA_API flashmla_status flashmla_convert(const flashmla_convert_args* args, flashmla_stream stream);

#ifdef __cplusplus
}
#endif

#endif
