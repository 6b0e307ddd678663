// Which row of the catalogue serves a call on a device, with one reason for it and one for every other kernel of the
// operation. Planning and the capability query both ask here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "flashmla/plan.hpp"

namespace flashmla::plan {

// What a call needs of a kernel.
struct Demand {
    Operation operation = Operation::kDecode;
    DType dtype = DType::kBFloat16;
    std::int64_t d_qk = 0;  // compared only with kernels that list head dims
    std::int64_t d_v = 0;
    CacheFormat format = CacheFormat::kBFloat16;  // compared only with kernels that list formats
    bool sparse = false;                          // decode by indices
    bool attn_sink = false;                       // decode with a sink
    std::int64_t page_size = 0;                   // compared only with kernels that take one page size
};

// Why a kernel of the demanded operation cannot serve it on the device; the first reason that holds, most fundamental
// first.
std::optional<std::string> why_not(const KernelInfo& kernel, const Demand& demand, const DeviceInfo& device);

// The device in the words of messages: "the CPU", "NVIDIA H200 (sm_90)".
std::string text(const DeviceInfo& device);

struct Choice {
    const KernelInfo* kernel = nullptr;
    std::vector<KernelVerdict> verdicts;  // the kernels of the operation, in catalogue order; reason empty when chosen
};

// kInvalidArgument for options that no device accepts, kUnsupported when no kernel fits; `built` is not asked for.
Result<Choice> choose_kernel(const Demand& demand, const DeviceInfo& device, const PlanOptions& options);

// Threads of a CPU kernel: as asked for, at most what one call uses.
int cpu_workers(const DeviceInfo& device, const PlanOptions& options);
std::string threads_text(int threads);  // "1 thread", "2 threads"

}  // namespace flashmla::plan
