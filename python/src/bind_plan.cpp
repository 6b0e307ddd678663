// plan_decode and what a plan shows.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.hpp"
#include "flashmla/device.hpp"
#include "flashmla/plan.hpp"
#include "flashmla/prefill.hpp"
#include "raise.hpp"
#include "words.hpp"

namespace nb = nanobind;

namespace flashmla::python {
namespace {

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

// Sizes by name; the package has checked that every value is an integer.
template <class Shape>
void set_sizes(Shape& shape, std::initializer_list<std::pair<const char*, std::int64_t Shape::*>> members,
               const nb::dict& sizes) {
    for (const auto& [name, member] : members) {
        if (sizes.contains(name)) shape.*member = nb::cast<std::int64_t>(sizes[name]);
    }
}

// format: "" for the 16-bit one that dtype implies.
DecodePlan plan(const nb::dict& sizes, const std::string& dtype, const std::string& format, bool causal, bool attn_sink,
                const std::string& device, nb::tuple options) {
    DecodeShape shape;
    using S = DecodeShape;
    set_sizes(shape,
              {{"b", &S::b},
               {"s_q", &S::s_q},
               {"h_q", &S::h_q},
               {"h_kv", &S::h_kv},
               {"d_qk", &S::d_qk},
               {"d_v", &S::d_v},
               {"page_size", &S::page_size},
               {"max_pages", &S::max_pages},
               {"topk", &S::topk},
               {"extra_topk", &S::extra_topk},
               {"extra_page_size", &S::extra_page_size}},
              sizes);
    shape.dtype = find_dtype(dtype);
    shape.format = format.empty() ? cache_format_16bit(shape.dtype) : find_format(format);
    shape.causal = causal;
    shape.attn_sink = attn_sink;
    return value_or_raise(plan_decode(shape, find_device(device), plan_options(options)));
}

PrefillPlan plan_prefill(const std::string& operation, const nb::dict& sizes, const std::string& dtype, bool causal,
                         const std::string& device, nb::tuple options) {
    PrefillShape shape;
    using S = PrefillShape;
    set_sizes(shape,
              {{"b", &S::b},
               {"total_q", &S::total_q},
               {"total_kv", &S::total_kv},
               {"max_seqlen_q", &S::max_seqlen_q},
               {"max_seqlen_kv", &S::max_seqlen_kv},
               {"h_q", &S::h_q},
               {"h_kv", &S::h_kv},
               {"d_qk", &S::d_qk},
               {"d_v", &S::d_v},
               {"topk", &S::topk}},
              sizes);
    shape.operation = find_operation(operation);
    shape.dtype = find_dtype(dtype);
    shape.causal = causal;
    return value_or_raise(flashmla::plan_prefill(shape, find_device(device), plan_options(options)));
}

// What the two kinds of plan show alike.
template <class Plan>
void bind_plan_class(nb::module_& module, const char* class_name, const char* what) {
    nb::class_<Plan>(module, class_name, what)
        .def_ro("kernel", &Plan::kernel, "Catalogue name of the kernel.")
        .def_ro("reason", &Plan::reason, "Why this kernel, in one sentence.")
        .def_prop_ro(
            "verdicts",
            [](const Plan& self) {
                std::vector<std::tuple<std::string, bool, std::string>> rows;
                for (const KernelVerdict& verdict : self.verdicts)
                    rows.emplace_back(verdict.kernel, verdict.chosen, verdict.reason);
                return rows;
            },
            "Every kernel of the operation: name, whether it was chosen, and why or why not.")
        .def_ro("num_workers", &Plan::num_workers, "Threads on a CPU, thread block clusters on a GPU.")
        .def_ro("workspace_bytes", &Plan::workspace_bytes, "Scratch memory that a run needs; 0 is possible.")
        .def_prop_ro(
            "batch_invariant", [](const Plan& self) { return self.options.batch_invariant; },
            "Whether a request's bits depend on that request alone.")
        .def_prop_ro(
            "device", [](const Plan& self) { return device_dict(self.device); },
            "The device planned for, with the keys of flashmla.info()['devices'].");
}

}  // namespace

void bind_plan(nb::module_& module) {
    bind_plan_class<DecodePlan>(module, "DecodePlan",
                                "How decode would run a shape: immutable, made by flashmla.plan.");
    bind_plan_class<PrefillPlan>(
        module, "PrefillPlan", "How a prefill operation would run a shape: immutable, made by flashmla.plan_prefill.");
    module.def("plan", &plan, nb::arg("sizes"), nb::arg("dtype"), nb::arg("format"), nb::arg("causal"),
               nb::arg("attn_sink"), nb::arg("device"), nb::arg("options"));
    module.def("plan_prefill", &plan_prefill, nb::arg("operation"), nb::arg("sizes"), nb::arg("dtype"),
               nb::arg("causal"), nb::arg("device"), nb::arg("options"));
    module.def(
        "device_info", [](const std::string& name) { return device_dict(find_device(name)); }, nb::arg("name"));
    module.def("cuda_device_count", &cuda_device_count);
}

}  // namespace flashmla::python
