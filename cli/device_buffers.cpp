#include "cli/device_buffers.hpp"

#include <charconv>

#include "cli/exit_codes.hpp"

namespace flashmla::cli {

std::unique_ptr<DeviceBuffers> open_device(const DeviceInfo& device, int threads) {
    if (device.device.type == DeviceType::kCpu) return open_cpu(threads);
    return open_cuda(device.device.index);
}

DeviceInfo choose_device(const std::string& text) {
    if (text == "cpu") return require(query_device({DeviceType::kCpu, 0}));
    if (text == "auto") {
        return require(query_device({cuda_device_count() > 0 ? DeviceType::kCuda : DeviceType::kCpu, 0}));
    }
    int index = 0;
    bool good = text == "cuda";
    if (text.rfind("cuda:", 0) == 0) {
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data() + 5, end, index);
        good = error == std::errc{} && stop == end && index >= 0;
    }
    if (!good) throw Failure{kExitBadInput, "--device: got '" + text + "', want auto, cpu, cuda or cuda:N"};
    return require(query_device({DeviceType::kCuda, index}));
}

#if !defined(FLASHMLA_WITH_CUDA)
std::unique_ptr<DeviceBuffers> open_cuda(int) {
    throw Failure{kExitUnsupported,
                  "--device: this build has no CUDA; configure with -DFLASHMLA_CUDA=ON, or use --device cpu"};
}
#endif

}  // namespace flashmla::cli
