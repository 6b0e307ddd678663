#include "dispatch/workspace_buffer.hpp"

#include <new>
#include <string>
#include <utility>

#include "device/cuda_runtime.hpp"
#include "plan/workspace.hpp"

namespace flashmla::dispatch {
namespace {

constexpr std::align_val_t kAlignment{plan::kWorkspaceAlignment};

}  // namespace

WorkspaceBuffer::WorkspaceBuffer(Device device, std::size_t bytes, StreamHandle stream)
    : device_(device), stream_(stream) {
    if (bytes == 0) return;
    if (device_.type == DeviceType::kCpu) {
        data_ = ::operator new(bytes, kAlignment, std::nothrow);
        if (data_ == nullptr) {
            status_ = {StatusCode::kOutOfMemory, "workspace: no " + std::to_string(bytes) + " bytes of host memory"};
        }
        return;
    }
    const device::CudaDeviceScope scope(device_.index);
    status_ = scope.status().ok() ? device::cuda_allocate(bytes, stream_, &data_) : scope.status();
    if (!status_.ok()) data_ = nullptr;
}

Status WorkspaceBuffer::release() {
    void* memory = std::exchange(data_, nullptr);
    if (memory == nullptr) return {};
    if (device_.type == DeviceType::kCpu) {
        ::operator delete(memory, kAlignment);
        return {};
    }
    const device::CudaDeviceScope scope(device_.index);
    return scope.status().ok() ? device::cuda_free(memory, stream_) : scope.status();
}

}  // namespace flashmla::dispatch
