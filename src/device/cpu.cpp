#include "device/cpu.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

#include "core/cpu_isa.hpp"

namespace flashmla::device {
namespace {

std::string model_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (line.rfind("model name", 0) != 0) continue;
        const std::size_t text = line.find_first_not_of(": \t", line.find(':'));
        if (text != std::string::npos) return line.substr(text);
    }
    return "CPU";
}

std::int64_t l2_bytes() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
    return std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE));
#else
    return 0;
#endif
}

}  // namespace

int usable_threads() {
#if defined(__linux__)
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
#endif
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

DeviceInfo query_cpu() {
    DeviceInfo info;
    info.device = {DeviceType::kCpu, 0};
    info.name = model_name();
    const Result<core::CpuIsa> isa = core::selected_cpu_isa();
    info.arch = core::name(isa.ok() ? isa.value() : core::detect_cpu_isa());
    info.num_processors = usable_threads();
    info.l2_bytes = l2_bytes();
    return info;
}

}  // namespace flashmla::device
