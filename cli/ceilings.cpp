#include "cli/ceilings.hpp"

#include "bench/fma_peak.hpp"

namespace flashmla::cli {

Ceilings measure_ceilings(const DeviceInfo& device, DeviceBuffers& buffers, int threads) {
    Ceilings ceilings;
    ceilings.copy_gbps = buffers.copy_gbps();
    if (device.device.type == DeviceType::kCpu) {
        ceilings.tflops = bench::measure_fma_tflops(device.arch, threads);
        ceilings.tflops_source = "measured, " + device.arch + " multiply-adds in registers";
    } else {
        ceilings.tflops = device.matrix_tflops;
        ceilings.tflops_source = device.matrix_tflops > 0 ? "known for the " + device.name : "not known for this GPU";
    }
    return ceilings;
}

nlohmann::ordered_json ceilings_json(const Ceilings& ceilings) {
    return {{"copy_gbps", ceilings.copy_gbps}, {"tflops", ceilings.tflops}, {"tflops_source", ceilings.tflops_source}};
}

}  // namespace flashmla::cli
