// Errors, element types, devices and tensors of the C interface.
#ifndef FLASHMLA_C_TYPES_H
#define FLASHMLA_C_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define FLASHMLA_API __attribute__((visibility("default")))
#else
#define FLASHMLA_API
#endif
// GCC warns of memory passed before it is filled; the function only keeps the address.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define FLASHMLA_KEEPS_ADDRESS(argument) __attribute__((access(none, argument)))
#else
#define FLASHMLA_KEEPS_ADDRESS(argument)
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t flashmla_status;
enum {
    FLASHMLA_OK = 0,
    FLASHMLA_INVALID_ARGUMENT = 1,  // never accepted: shape, dtype, stride, null pointer, ...
    FLASHMLA_UNSUPPORTED = 2,       // legal, but this build or device cannot do it; the text says why
    FLASHMLA_OUT_OF_MEMORY = 3,
    FLASHMLA_RUNTIME_ERROR = 4  // the device or its driver failed
};

// What the calling thread's latest failed call complained about: the argument's name, what it got, what it accepts. ""
// before the first failure. Valid until that thread's next failure; successful calls leave it alone.
FLASHMLA_API const char* flashmla_last_error(void);

// Sets up a struct of this header: all fields zero, struct_size filled in.
#define FLASHMLA_INIT(pointer) \
    ((void)memset((pointer), 0, sizeof *(pointer)), (void)((pointer)->struct_size = (uint32_t)sizeof *(pointer)))

typedef int32_t flashmla_dtype;
enum {
    FLASHMLA_BFLOAT16 = 1,
    FLASHMLA_FLOAT16 = 2,
    FLASHMLA_FLOAT32 = 3,
    FLASHMLA_INT32 = 4,
    FLASHMLA_FLOAT8_E4M3 = 5,
    FLASHMLA_UINT8 = 6,
    FLASHMLA_INT64 = 7
};

typedef int32_t flashmla_device_type;
enum { FLASHMLA_CPU = 0, FLASHMLA_CUDA = 1 };

// Byte format of a latent cache (cache_format.hpp).
typedef int32_t flashmla_cache_format;
enum {
    FLASHMLA_CACHE_OF_DTYPE = 0,  // the 16-bit format of the dtype that stands beside it
    FLASHMLA_CACHE_BFLOAT16 = 1,
    FLASHMLA_CACHE_FLOAT16 = 2,
    FLASHMLA_CACHE_FP8_FLAT = 3,
    FLASHMLA_CACHE_FP8_656 = 4,
    FLASHMLA_CACHE_FP8_584 = 5
};

typedef int32_t flashmla_operation;
enum {
    FLASHMLA_DECODE = 1,
    FLASHMLA_SPARSE_PREFILL = 2,
    FLASHMLA_DENSE_PREFILL = 3,
    FLASHMLA_DENSE_PREFILL_BACKWARD = 4,
    FLASHMLA_APPEND = 5,
    FLASHMLA_GATHER = 6,
    FLASHMLA_COPY_PAGES = 7,
    FLASHMLA_CONVERT = 8,
    FLASHMLA_MERGE = 9,
    FLASHMLA_ABSORB = 10
};

// A CUDA stream (cudaStream_t); null is the default stream, and what calls on the CPU pass.
typedef void* flashmla_stream;

enum { FLASHMLA_MAX_RANK = 8 };

// A borrowed tensor. Structs below hold pointers to these: null, or rank 0, is a tensor that is not given.
typedef struct flashmla_tensor {
    uint32_t struct_size;
    flashmla_dtype dtype;
    flashmla_device_type device_type;
    int32_t device_index;  // CUDA ordinal; 0 for the CPU
    int32_t rank;
    int32_t reserved;                   // 0
    void* data;                         // null only without elements; inputs are never written
    int64_t shape[FLASHMLA_MAX_RANK];   // elements
    int64_t stride[FLASHMLA_MAX_RANK];  // elements, not bytes
} flashmla_tensor;

// A view of row-major contiguous host memory; a rank above FLASHMLA_MAX_RANK is refused by every call.
FLASHMLA_KEEPS_ADDRESS(1)
static inline flashmla_tensor flashmla_contiguous(const void* data, flashmla_dtype dtype, int32_t rank,
                                                  const int64_t* shape) {
    flashmla_tensor tensor;
    int64_t step = 1;
    int32_t axis;
    FLASHMLA_INIT(&tensor);
    memcpy(&tensor.data, &data, sizeof data);  // drops the const
    tensor.dtype = dtype;
    tensor.rank = rank;
    for (axis = (rank < FLASHMLA_MAX_RANK ? rank : FLASHMLA_MAX_RANK) - 1; axis >= 0; --axis) {
        tensor.shape[axis] = shape[axis];
        tensor.stride[axis] = step;
        step *= shape[axis];
    }
    return tensor;
}

#ifdef __cplusplus
}
#endif

#endif
