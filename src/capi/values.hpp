// Enumerations of the C interface as those of the C++ interface and back.
#pragma once

#include "flashmla/c/types.h"
#include "flashmla/cache_format.hpp"
#include "flashmla/types.hpp"

namespace flashmla::capi {

template <class T>
struct ValuePair {
    std::int32_t c;
    T cpp;
};

inline constexpr ValuePair<DType> kDTypes[] = {
    {FLASHMLA_BFLOAT16, DType::kBFloat16},
    {FLASHMLA_FLOAT16, DType::kFloat16},
    {FLASHMLA_FLOAT32, DType::kFloat32},
    {FLASHMLA_INT32, DType::kInt32},
    {FLASHMLA_FLOAT8_E4M3, DType::kFloat8E4m3},
    {FLASHMLA_UINT8, DType::kUInt8},
    {FLASHMLA_INT64, DType::kInt64},
};

inline constexpr ValuePair<CacheFormat> kFormats[] = {
    {FLASHMLA_CACHE_BFLOAT16, CacheFormat::kBFloat16}, {FLASHMLA_CACHE_FLOAT16, CacheFormat::kFloat16},
    {FLASHMLA_CACHE_FP8_FLAT, CacheFormat::kFp8Flat},  {FLASHMLA_CACHE_FP8_656, CacheFormat::kFp8_656},
    {FLASHMLA_CACHE_FP8_584, CacheFormat::kFp8_584},
};

inline constexpr ValuePair<Operation> kOperations[] = {
    {FLASHMLA_DECODE, Operation::kDecode},
    {FLASHMLA_SPARSE_PREFILL, Operation::kSparsePrefill},
    {FLASHMLA_DENSE_PREFILL, Operation::kDensePrefill},
    {FLASHMLA_DENSE_PREFILL_BACKWARD, Operation::kDensePrefillBackward},
    {FLASHMLA_APPEND, Operation::kAppend},
    {FLASHMLA_GATHER, Operation::kGather},
    {FLASHMLA_COPY_PAGES, Operation::kCopyPages},
    {FLASHMLA_CONVERT, Operation::kConvert},
    {FLASHMLA_MERGE, Operation::kMerge},
    {FLASHMLA_ABSORB, Operation::kAbsorb},
};

inline constexpr ValuePair<DeviceType> kDeviceTypes[] = {
    {FLASHMLA_CPU, DeviceType::kCpu},
    {FLASHMLA_CUDA, DeviceType::kCuda},
};

constexpr const char* name(DeviceType type) { return type == DeviceType::kCpu ? "cpu" : "cuda"; }

// -1 for a value outside the table: none of the enumerations has it.
template <class T, std::size_t N>
constexpr std::int32_t to_c(const ValuePair<T> (&pairs)[N], T value) {
    for (const ValuePair<T>& pair : pairs) {
        if (pair.cpp == value) return pair.c;
    }
    return -1;
}

}  // namespace flashmla::capi
