// plan_decode and what a plan shows.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "bind.hpp"
#include "flashmla/device.hpp"
#include "flashmla/plan.hpp"
#include "raise.hpp"

namespace nb = nanobind;

namespace flashmla::python {
namespace {

// "cpu", "cuda", "cuda:1", or the name of a reference description ("h200") to plan for hardware that is not here.
DeviceInfo find_device(const std::string& name) {
    if (name == "cpu") return value_or_raise(query_device({.type = DeviceType::kCpu, .index = 0}));
    if (name == "cuda") return value_or_raise(query_device({.type = DeviceType::kCuda, .index = 0}));
    if (name.starts_with("cuda:") && name.size() > 5 && name.size() < 10 &&
        name.find_first_not_of("0123456789", 5) == std::string::npos) {
        return value_or_raise(query_device({.type = DeviceType::kCuda, .index = std::stoi(name.substr(5))}));
    }
    return value_or_raise(named_device(name));
}

DType find_dtype(const std::string& dtype_name) {
    for (DType dtype : kAllDTypes) {
        if (dtype_name == name(dtype)) return dtype;
    }
    throw nb::value_error(("dtype: got " + dtype_name + ", wanted bfloat16 or float16").c_str());
}

nb::dict device_dict(const DeviceInfo& info) {
    nb::dict result;
    result["name"] = info.name;
    result["type"] = info.device.type == DeviceType::kCuda ? "cuda" : "cpu";
    result["index"] = info.device.index;
    result["arch"] = info.arch;
    result["compute_capability"] = info.compute_capability;
    result["num_processors"] = info.num_processors;
    result["smem_per_block_bytes"] = info.smem_per_block_bytes;
    result["l2_bytes"] = info.l2_bytes;
    result["memory_gbps"] = info.memory_gbps;
    result["matrix_tflops"] = info.matrix_tflops;
    return result;
}

DecodePlan plan(std::int64_t b, std::int64_t s_q, std::int64_t h_q, std::int64_t h_kv, std::int64_t d_qk,
                std::int64_t d_v, std::int64_t page_size, std::int64_t max_pages, const std::string& dtype, bool causal,
                const std::string& device, bool batch_invariant, const std::string& kernel, int num_workers) {
    const DecodeShape shape{.b = b,
                            .s_q = s_q,
                            .h_q = h_q,
                            .h_kv = h_kv,
                            .d_qk = d_qk,
                            .d_v = d_v,
                            .page_size = page_size,
                            .max_pages = max_pages,
                            .dtype = find_dtype(dtype),
                            .causal = causal};
    return value_or_raise(
        plan_decode(shape, find_device(device),
                    {.batch_invariant = batch_invariant, .kernel = kernel, .num_workers = num_workers}));
}

std::vector<std::tuple<std::string, bool, std::string>> verdicts(const DecodePlan& self) {
    std::vector<std::tuple<std::string, bool, std::string>> rows;
    for (const KernelVerdict& verdict : self.verdicts)
        rows.emplace_back(verdict.kernel, verdict.chosen, verdict.reason);
    return rows;
}

}  // namespace

void bind_plan(nb::module_& module) {
    nb::class_<DecodePlan>(module, "DecodePlan")
        .def_ro("kernel", &DecodePlan::kernel)
        .def_ro("reason", &DecodePlan::reason)
        .def_prop_ro("verdicts", &verdicts)
        .def_ro("num_workers", &DecodePlan::num_workers)
        .def_ro("workspace_bytes", &DecodePlan::workspace_bytes)
        .def_prop_ro("batch_invariant", [](const DecodePlan& self) { return self.options.batch_invariant; })
        .def_prop_ro("device", [](const DecodePlan& self) { return device_dict(self.device); });
    module.def("plan", &plan, nb::arg("b"), nb::arg("s_q"), nb::arg("h_q"), nb::arg("h_kv"), nb::arg("d_qk"),
               nb::arg("d_v"), nb::arg("page_size"), nb::arg("max_pages"), nb::arg("dtype"), nb::arg("causal"),
               nb::arg("device"), nb::arg("batch_invariant"), nb::arg("kernel"), nb::arg("num_workers"));
    module.def(
        "device_info", [](const std::string& name) { return device_dict(find_device(name)); }, nb::arg("name"));
    module.def("cuda_device_count", &cuda_device_count);
}

}  // namespace flashmla::python
