// What the machine can do at most, to read a measurement against.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/device_buffers.hpp"
#include "flashmla/device.hpp"

namespace flashmla::cli {

struct Ceilings {
    double copy_gbps = 0;  // measured now
    double tflops = 0;     // of the arithmetic that the kernels of this device use
    std::string tflops_source;
};

// CPU: multiply-adds of the widest path in use, measured on `threads` threads. GPU: the rate known for its name; 0 when
// not known.
Ceilings measure_ceilings(const DeviceInfo& device, DeviceBuffers& buffers, int threads);

nlohmann::ordered_json ceilings_json(const Ceilings& ceilings);

}  // namespace flashmla::cli
