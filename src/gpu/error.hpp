// CUDA calls as Status values.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "flashmla/status.hpp"

namespace flashmla::gpu {

// Also clears the runtime's sticky "last error", so that a failure is reported once, here, and not by somebody's later
// call.
inline Status cuda_status(cudaError_t error, const char* expression) {
    if (error == cudaSuccess) return {};
    (void)cudaGetLastError();
    const std::string message = std::string(expression) + " failed: " + cudaGetErrorString(error);
    if (error == cudaErrorMemoryAllocation) return {StatusCode::kOutOfMemory, message};
    return runtime_error(message);
}

}  // namespace flashmla::gpu

#define FLASHMLA_CUDA_TRY(expression)                                                                \
    do {                                                                                             \
        ::flashmla::Status flashmla_status_ = ::flashmla::gpu::cuda_status(expression, #expression); \
        if (!flashmla_status_.ok()) return flashmla_status_;                                         \
    } while (0)
