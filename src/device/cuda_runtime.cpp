#include "device/cuda_runtime.hpp"

#if defined(FLASHMLA_WITH_CUDA)

#include <cuda_runtime_api.h>

#include <string>

#include "device/known_devices.hpp"

namespace flashmla::device {
namespace {

// Turns a CUDA result into a Status, and clears the runtime's own memory of it so that no later call inherits it.
Status checked(cudaError_t error, const char* expression) {
    if (error == cudaSuccess) return {};
    (void)cudaGetLastError();
    const StatusCode code = error == cudaErrorMemoryAllocation ? StatusCode::kOutOfMemory : StatusCode::kRuntimeError;
    return {code, std::string(expression) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error)};
}

#define FLASHMLA_CHECKED(expression) checked(expression, #expression)

}  // namespace

int cuda_count() {
    int count = 0;
    return FLASHMLA_CHECKED(cudaGetDeviceCount(&count)).ok() ? count : 0;
}

Result<DeviceInfo> query_cuda(int index) {
    cudaDeviceProp properties{};
    if (Status status = FLASHMLA_CHECKED(cudaGetDeviceProperties(&properties, index)); !status.ok()) return status;
    DeviceInfo info;
    info.device = {DeviceType::kCuda, index};
    info.name = properties.name;
    info.compute_capability = properties.major * 10 + properties.minor;
    info.arch = "sm_" + std::to_string(info.compute_capability);
    info.num_processors = properties.multiProcessorCount;
    info.smem_per_block_bytes = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin);
    info.l2_bytes = properties.l2CacheSize;
    add_measured_ceilings(info);
    return info;
}

Status cuda_allocate(std::size_t bytes, StreamHandle stream, void** memory) {
    return FLASHMLA_CHECKED(cudaMallocAsync(memory, bytes, static_cast<cudaStream_t>(stream)));
}

Status cuda_free(void* memory, StreamHandle stream) {
    return FLASHMLA_CHECKED(cudaFreeAsync(memory, static_cast<cudaStream_t>(stream)));
}

CudaDeviceScope::CudaDeviceScope(int index) {
    int current = -1;
    status_ = FLASHMLA_CHECKED(cudaGetDevice(&current));
    if (!status_.ok() || current == index) return;
    status_ = FLASHMLA_CHECKED(cudaSetDevice(index));
    if (status_.ok()) former_ = current;
}

CudaDeviceScope::~CudaDeviceScope() {
    if (former_ >= 0) (void)cudaSetDevice(former_);
}

}  // namespace flashmla::device

#else

namespace flashmla::device {
namespace {

Status without_cuda() { return unsupported("device: this build of flashmla has no CUDA parts"); }

}  // namespace

int cuda_count() { return 0; }
Result<DeviceInfo> query_cuda(int) { return without_cuda(); }
Status cuda_allocate(std::size_t, StreamHandle, void**) { return without_cuda(); }
Status cuda_free(void*, StreamHandle) { return without_cuda(); }
CudaDeviceScope::CudaDeviceScope(int) : status_(without_cuda()) {}
CudaDeviceScope::~CudaDeviceScope() = default;

}  // namespace flashmla::device

#endif
