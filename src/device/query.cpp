#include <map>
#include <mutex>
#include <string>

#include "device/cpu.hpp"
#include "device/cuda_runtime.hpp"
#include "flashmla/device.hpp"

namespace flashmla {
int cuda_device_count() { return device::cuda_count(); }

Result<DeviceInfo> query_device(Device device) {
    if (device.type == DeviceType::kCpu) {
        if (device.index != 0) {
            return invalid_argument("device: got cpu:" + std::to_string(device.index) + ", wanted cpu:0");
        }
        return device::query_cpu();
    }
    // A device does not change while the process lives, and asking the driver costs more than a small kernel.
    static std::mutex mutex;
    static std::map<int, DeviceInfo> known;
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(device.index); found != known.end()) return found->second;
    const int count = device::cuda_count();
    if (device.index < 0 || (count > 0 && device.index >= count)) {
        return invalid_argument("device: got cuda:" + std::to_string(device.index) +
                                ", wanted cuda:0 to cuda:" + std::to_string(count > 0 ? count - 1 : 0));
    }
    Result<DeviceInfo> info = device::query_cuda(device.index);
    if (!info.ok() && count == 0) {
        const Status status = info.status();
        if (status.code() == StatusCode::kUnsupported) return status;
        return unsupported("device: no CUDA device found (" + status.message() + ")");
    }
    if (info.ok()) known.emplace(device.index, info.value());
    return info;
}

}  // namespace flashmla
