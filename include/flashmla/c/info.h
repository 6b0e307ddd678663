// What is running and on what: build_info.hpp, device.hpp, capability.hpp, cache_format.hpp.
#ifndef FLASHMLA_C_INFO_H
#define FLASHMLA_C_INFO_H

#include "flashmla/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct flashmla_build_info {
    uint32_t struct_size;
    uint32_t reserved;
    const char* version;             // strings live as long as the library
    const char* git_revision;        // short hash, "-dirty" appended when the tree had changes
    const char* source_hash;         // of what computes
    const char* compiler;            // host compiler and version
    const char* cuda_toolkit;        // "" when built without CUDA
    const char* cuda_architectures;  // "90a", or ""
    const char* cpu_paths;           // widest first, comma separated
} flashmla_build_info;

FLASHMLA_API flashmla_status flashmla_query_build(flashmla_build_info* build);

// FLASHMLA_VERSION_STRING of the library that runs; the macro is that of the header.
FLASHMLA_API const char* flashmla_version(void);

typedef struct flashmla_device_info {
    uint32_t struct_size;
    flashmla_device_type type;
    int32_t index;
    int32_t compute_capability;  // 90 for Hopper; 0 for the CPU
    int32_t num_processors;      // SMs of a GPU, hardware threads of a CPU
    int32_t reserved;
    int64_t smem_per_block_bytes;
    int64_t l2_bytes;
    double memory_gbps;    // achievable; 0 = not known
    double matrix_tflops;  // achievable dense bf16; 0 = not known
    char name[128];
    char arch[32];  // "sm_90"; the widest usable path for the CPU
} flashmla_device_info;

FLASHMLA_API flashmla_status flashmla_query_device(flashmla_device_type type, int32_t index,
                                                   flashmla_device_info* device);

// A known device that need not be there ("h200", "h100"), to plan for.
FLASHMLA_API flashmla_status flashmla_named_device(const char* name, flashmla_device_info* device);

// CUDA devices this process can use; 0 without CUDA, a driver or a GPU.
FLASHMLA_API int32_t flashmla_cuda_device_count(void);

// Name of kernel number `index` of the catalogue, from 0; null past the last one.
FLASHMLA_API const char* flashmla_kernel_name(int32_t index);

typedef struct flashmla_capability_query {
    uint32_t struct_size;
    flashmla_operation operation;
    flashmla_dtype dtype;          // of the queries, or of the rows for cache operations
    flashmla_cache_format format;  // of the cache; ignored by operations without one
    int32_t d_qk, d_v;             // head dimensions; ignored by operations without heads
    int32_t sparse;                // decode by indices
    int32_t reserved;
    int64_t page_size;  // decode
} flashmla_capability_query;

// FLASHMLA_OK = yes; FLASHMLA_UNSUPPORTED = no, and flashmla_last_error() says why.
FLASHMLA_API flashmla_status flashmla_check_capability(const flashmla_capability_query* query,
                                                       const flashmla_device_info* device);

// Bytes of a token's record and of a page of them.
FLASHMLA_API flashmla_status flashmla_cache_record_bytes(flashmla_cache_format format, int64_t d_qk, int64_t* bytes);
FLASHMLA_API flashmla_status flashmla_cache_page_bytes(flashmla_cache_format format, int64_t d_qk, int64_t page_size,
                                                       int64_t* bytes);

// The format of a cache tensor that serves queries of d_qk values.
FLASHMLA_API flashmla_status flashmla_cache_format_of(int64_t d_qk, const flashmla_tensor* cache,
                                                      flashmla_cache_format* format);

#ifdef __cplusplus
}
#endif

#endif
