#include "gpu/tensor_map.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "gpu/error.hpp"

namespace flashmla::gpu {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// The driver's entry is looked up at run time, so that the library loads on machines without a driver.
EncodeTiled find_encode() {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    constexpr unsigned int kSinceCuda12 = 12000;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, kSinceCuda12, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return nullptr;
    }
    return reinterpret_cast<EncodeTiled>(entry);
}

bool aligned_16(std::int64_t bytes) { return bytes % 16 == 0; }

}  // namespace

Status encode_tensor_map(const MapSpec& spec, CUtensorMap* map) {
    static const EncodeTiled encode = find_encode();
    if (encode == nullptr) {
        return runtime_error("the CUDA driver has no cuTensorMapEncodeTiled (CUDA 12 or newer is needed)");
    }

    const auto element_bytes = static_cast<std::int64_t>(size_bytes(spec.dtype));
    cuuint64_t extents[kMapRank];
    cuuint64_t strides_bytes[kMapRank];
    cuuint32_t boxes[kMapRank];
    cuuint32_t steps[kMapRank];
    if (!aligned_16(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(spec.base)))) {
        return unsupported(std::string(spec.tensor) +
                           ": data pointer is not a multiple of 16 bytes, as bulk copies need");
    }
    for (int axis = 0; axis < spec.rank; ++axis) {
        const MapAxis& a = spec.axes[axis];
        extents[axis] = static_cast<cuuint64_t>(std::max<std::int64_t>(a.extent, 1));
        boxes[axis] = a.box;
        steps[axis] = 1;
        if (axis == 0) continue;
        // The stride of an axis with one element is never used, but must still be legal.
        const std::int64_t stride = a.extent > 1 ? a.stride_elements * element_bytes : 16;
        if (!aligned_16(stride) || stride <= 0) {
            return unsupported(std::string(spec.tensor) + ": stride of " + std::to_string(a.stride_elements) +
                               " elements is not a positive multiple of 16 bytes, as bulk copies need");
        }
        strides_bytes[axis - 1] = static_cast<cuuint64_t>(stride);
    }
    const CUtensorMapDataType type =
        spec.dtype == DType::kFloat16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    const auto encode_once = [&] {
        return encode(map, type, static_cast<cuuint32_t>(spec.rank), const_cast<void*>(spec.base), extents,
                      strides_bytes, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                      spec.promote_l2 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_NONE,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    CUresult result = encode_once();
    if (result == CUDA_ERROR_INVALID_CONTEXT) {  // a thread's first call; the runtime then makes its device's current
        int device = 0;
        FLASHMLA_CUDA_TRY(cudaGetDevice(&device));
        FLASHMLA_CUDA_TRY(cudaSetDevice(device));
        result = encode_once();
    }
    if (result != CUDA_SUCCESS) {
        return runtime_error(std::string(spec.tensor) + ": the driver refused the tensor map (CUresult " +
                             std::to_string(static_cast<int>(result)) + ")");
    }
    return {};
}

}  // namespace flashmla::gpu
