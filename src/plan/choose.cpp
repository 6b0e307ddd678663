#include "plan/choose.hpp"

#include <algorithm>

#include "backends/cpu/config.hpp"
#include "core/host_device.hpp"
#include "plan/catalog.hpp"

namespace flashmla::plan {
namespace {

constexpr int kMaxWorkers = 4096;

std::string pair_text(std::int64_t d_qk, std::int64_t d_v) {
    return "(" + std::to_string(d_qk) + ", " + std::to_string(d_v) + ")";
}

// "a, b or c"
template <class Items, class Text>
std::string one_of(const Items& items, const Text& text) {
    std::string list;
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (i > 0) list += i + 1 == items.size() ? " or " : ", ";
        list += text(items[i]);
    }
    return list;
}

std::string dims_list(const KernelInfo& kernel) {
    std::string list;
    for (const HeadDims& dims : kernel.dims) list += (list.empty() ? "" : ", ") + pair_text(dims.d_qk, dims.d_v);
    return list;
}

template <class Items, class T>
bool contains(const Items& items, const T& value) {
    return std::find(items.begin(), items.end(), value) != items.end();
}

Status check_options(const Demand& demand, const DeviceInfo& device, const PlanOptions& options) {
    if (options.num_workers < 0 || options.num_workers > kMaxWorkers) {
        return invalid_argument("num_workers: got " + std::to_string(options.num_workers) + ", wanted 0 to " +
                                std::to_string(kMaxWorkers));
    }
    if (device.num_processors < 1 || device.num_processors > kMaxWorkers) {
        return invalid_argument("device.num_processors: got " + std::to_string(device.num_processors) +
                                ", wanted 1 to " + std::to_string(kMaxWorkers));
    }
    if (options.kernel.empty()) return {};
    std::string known;
    for (const KernelInfo& kernel : kernel_catalog()) {
        if (kernel.operation != demand.operation) continue;
        if (options.kernel == kernel.name) return {};
        known += (known.empty() ? "" : ", ") + std::string(kernel.name);
    }
    return invalid_argument("kernel: got '" + options.kernel + "', wanted one of " + known);
}

// The reason a caller can act on when nothing fits: that of the forced kernel, or of the first kernel for such a
// device, if possible one that finds its keys in the way asked for.
Status nothing_fits(const Demand& demand, const DeviceInfo& device, const PlanOptions& options,
                    const std::vector<KernelVerdict>& verdicts) {
    const KernelVerdict* told = nullptr;
    for (const KernelVerdict& verdict : verdicts) {
        const bool forced = options.kernel == verdict.kernel;
        const KernelInfo& kernel = *kernel_named(verdict.kernel);
        const bool same_device = options.kernel.empty() && kernel.device == device.device.type;
        const bool nearer =
            told == nullptr || (kernel.sparse == demand.sparse && kernel_named(told->kernel)->sparse != demand.sparse);
        if (nearer && (forced || same_device)) told = &verdict;
    }
    if (told != nullptr) return unsupported(told->kernel + ": " + told->reason);
    std::string existing;
    for (const KernelVerdict& verdict : verdicts) existing += (existing.empty() ? "" : ", ") + verdict.kernel;
    return unsupported(std::string(name(demand.operation)) + ": no kernel runs on " + text(device) +
                       (existing.empty() ? "" : "; there is " + existing));
}

}  // namespace

std::string text(const DeviceInfo& device) {
    if (device.device.type == DeviceType::kCpu) return "the CPU";
    return device.name.empty() ? device.arch : device.name + " (" + device.arch + ")";
}

std::optional<std::string> why_not(const KernelInfo& kernel, const Demand& demand, const DeviceInfo& device) {
    const bool gpu = device.device.type == DeviceType::kCuda;
    if (kernel.device != device.device.type) {
        return std::string(gpu ? "runs on CPU tensors only, the device is "
                               : "runs on a CUDA device only, the device is ") +
               text(device);
    }
    if (kernel.compute_capability != 0 && kernel.compute_capability != device.compute_capability) {
        const std::string wanted = std::to_string(kernel.compute_capability);
        return "device: got " + text(device) + ", wanted compute capability " + wanted.substr(0, 1) + "." +
               wanted.substr(1) + " exactly, because sm_" + wanted + "a code runs nowhere else";
    }
    if (kernel.sparse != demand.sparse) {
        return demand.sparse ? "indices: got some, wanted none: the kernel reads a block table"
                             : "indices: got none, wanted some: the kernel reads no block table";
    }
    if (!contains(kernel.dtypes, demand.dtype)) {
        return std::string("dtype: got ") + name(demand.dtype) + ", wanted " +
               one_of(kernel.dtypes, [](DType dtype) { return std::string(name(dtype)); });
    }
    if (!kernel.formats.empty() && !contains(kernel.formats, demand.format)) {
        return std::string("cache format: got ") + name(demand.format) + ", wanted " +
               one_of(kernel.formats, [](CacheFormat format) { return std::string(name(format)); });
    }
    if (demand.attn_sink && !kernel.attn_sink) return "attn_sink: got one, wanted none";
    const auto same_dims = [&](const HeadDims& dims) { return dims.d_qk == demand.d_qk && dims.d_v == demand.d_v; };
    if (!kernel.dims.empty() && std::none_of(kernel.dims.begin(), kernel.dims.end(), same_dims)) {
        return "(d_qk, d_v): got " + pair_text(demand.d_qk, demand.d_v) + ", wanted " + dims_list(kernel);
    }
    if (kernel.page_size != 0 && kernel.page_size != demand.page_size) {
        return "page_size: got " + std::to_string(demand.page_size) + ", wanted " + std::to_string(kernel.page_size);
    }
    return std::nullopt;
}

Result<Choice> choose_kernel(const Demand& demand, const DeviceInfo& device, const PlanOptions& options) {
    if (Status status = check_options(demand, device, options); !status.ok()) return status;
    Choice choice;
    for (const KernelInfo& kernel : kernel_catalog()) {
        if (kernel.operation != demand.operation) continue;
        KernelVerdict verdict{.kernel = kernel.name, .chosen = false, .reason = {}};
        const bool wanted = options.kernel.empty() || options.kernel == kernel.name;
        if (std::optional<std::string> reason = why_not(kernel, demand, device)) {
            verdict.reason = *reason;
        } else if (!wanted) {
            verdict.reason = "fits, but options.kernel asks for " + options.kernel;
        } else if (choice.kernel != nullptr) {
            verdict.reason = std::string("fits, but ") + choice.kernel->name + " comes first";
        } else {
            verdict.chosen = true;
            choice.kernel = &kernel;
        }
        choice.verdicts.push_back(std::move(verdict));
    }
    if (choice.kernel == nullptr) return nothing_fits(demand, device, options, choice.verdicts);
    return choice;
}

int cpu_workers(const DeviceInfo& device, const PlanOptions& options) {
    const int asked = options.num_workers > 0 ? options.num_workers : device.num_processors;
    return core::min_of(asked, backends::cpu::kMaxThreads);
}

std::string threads_text(int threads) { return std::to_string(threads) + (threads == 1 ? " thread" : " threads"); }

}  // namespace flashmla::plan
