// The few CUDA runtime calls that host code makes, without CUDA headers. In a build without CUDA each returns
// kUnsupported.
#pragma once

#include <cstddef>

#include "flashmla/device.hpp"
#include "flashmla/status.hpp"
#include "flashmla/types.hpp"

namespace flashmla::device {

// 0 without CUDA, a driver or a GPU.
int cuda_count();

Result<DeviceInfo> query_cuda(int index);

// Stream-ordered memory on the current device.
Status cuda_allocate(std::size_t bytes, StreamHandle stream, void** memory);
Status cuda_free(void* memory, StreamHandle stream);

// Makes `index` the current device of this thread and puts the former one back: work runs on the tensors' own device.
class CudaDeviceScope {
public:
    explicit CudaDeviceScope(int index);
    ~CudaDeviceScope();
    CudaDeviceScope(const CudaDeviceScope&) = delete;
    CudaDeviceScope& operator=(const CudaDeviceScope&) = delete;

    const Status& status() const { return status_; }

private:
    Status status_;
    int former_ = -1;  // -1: nothing to put back
};

}  // namespace flashmla::device
