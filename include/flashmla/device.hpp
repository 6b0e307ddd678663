// What the planner needs to know about a device: a plain description, so that a plan for an H200 can be made anywhere.
#pragma once

#include <string>

#include "flashmla/status.hpp"
#include "flashmla/types.hpp"

namespace flashmla {

struct DeviceInfo {
    Device device{};
    std::string name;
    std::string arch;  // "sm_90" for CUDA; the widest CPU path usable here for the CPU: "avx512_bf16", "avx512",
                       // "avx2", "portable"
    int compute_capability = 0;  // 90 for Hopper; 0 for the CPU
    int num_processors = 1;      // SMs of a GPU, hardware threads of a CPU
    std::int64_t smem_per_block_bytes = 0;
    std::int64_t l2_bytes = 0;
    double memory_gbps = 0;    // achievable, not datasheet; 0 = not known
    double matrix_tflops = 0;  // achievable dense bf16; 0 = not known
};

// The machine's own devices. kUnsupported when there is none (or this build has no CUDA): the message says which.
Result<DeviceInfo> query_device(Device device);

// Number of CUDA devices this process can use; 0 without CUDA, a driver or a GPU. Never an error.
int cuda_device_count();

// Reference descriptions for planning and roofline times without the hardware: "h200", "h100".
// kInvalidArgument for another name, listing the known ones.
Result<DeviceInfo> named_device(const std::string& name);

}  // namespace flashmla
