#include "device/known_devices.hpp"

#include <string>

namespace flashmla {
namespace {

struct KnownDevice {
    const char* key;
    const char* product;  // part of the name that the driver reports
    int num_sms;
    std::int64_t l2_bytes;
    double memory_gbps;
    double matrix_tflops;
};

constexpr std::int64_t kHopperSmemBytes = 227 * 1024;

constexpr KnownDevice kKnownDevices[] = {
    // Achieved: the best decode kernels on an H200 stream 4,200 GB/s of its 4,800 and reach 740 bf16 TFLOPS.
    {"h200", "H200", 132, 50 << 20, 4200, 740},
    // Public figures of the SXM5 part: 132 SMs, 3,350 GB/s, the H200's compute die; the same shares of the peaks are
    // assumed.
    {"h100", "H100", 132, 50 << 20, 2930, 740},
};

}  // namespace

void device::add_measured_ceilings(DeviceInfo& info) {
    for (const KnownDevice& known : kKnownDevices) {
        // A partition or another variant of the part (fewer SMs) has other ceilings.
        if (info.name.find(known.product) == std::string::npos || info.num_processors != known.num_sms) continue;
        info.memory_gbps = known.memory_gbps;
        info.matrix_tflops = known.matrix_tflops;
    }
}

Result<DeviceInfo> named_device(const std::string& name) {
    std::string keys;
    for (const KnownDevice& known : kKnownDevices) {
        if (name == known.key) {
            DeviceInfo info;
            info.device = {DeviceType::kCuda, 0};
            info.name = std::string("NVIDIA ") + known.product;
            info.arch = "sm_90";
            info.compute_capability = 90;
            info.num_processors = known.num_sms;
            info.smem_per_block_bytes = kHopperSmemBytes;
            info.l2_bytes = known.l2_bytes;
            info.memory_gbps = known.memory_gbps;
            info.matrix_tflops = known.matrix_tflops;
            return info;
        }
        keys += (keys.empty() ? "" : ", ") + std::string(known.key);
    }
    return invalid_argument("device name: got '" + name + "', wanted one of " + keys);
}

}  // namespace flashmla
