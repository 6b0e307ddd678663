// Which kernel serves a shape on a device, with one reason for it and one for every other kernel.
#include <optional>
#include <string>

#include "backends/cpu/config.hpp"
#include "backends/sm90/decode_dense/config.hpp"
#include "core/row_tiling.hpp"
#include "flashmla/plan.hpp"
#include "plan/catalog.hpp"
#include "plan/shape.hpp"
#include "plan/workspace.hpp"

namespace flashmla {
namespace {

namespace sm90_dense = backends::sm90::decode_dense;

constexpr int kMaxWorkers = 4096;

std::string text(HeadDims dims) { return "(" + std::to_string(dims.d_qk) + ", " + std::to_string(dims.d_v) + ")"; }

std::string text(const DeviceInfo& device) {
    if (device.device.type == DeviceType::kCpu) return "the CPU";
    return device.name.empty() ? device.arch : device.name + " (" + device.arch + ")";
}

std::string dims_list(const KernelInfo& kernel) {
    std::string list;
    for (const HeadDims& dims : kernel.dims) list += (list.empty() ? "" : ", ") + text(dims);
    return list;
}

// Why a kernel cannot serve the shape on the device; the first reason that holds, most fundamental first.
std::optional<std::string> why_not(const KernelInfo& kernel, const DecodeShape& shape, const DeviceInfo& device) {
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
    bool fits = false;
    for (DType dtype : kernel.dtypes) fits = fits || dtype == shape.dtype;
    if (!fits) return std::string("dtype: got ") + name(shape.dtype) + ", wanted bfloat16 or float16";
    fits = false;
    for (const HeadDims& dims : kernel.dims) fits = fits || (dims.d_qk == shape.d_qk && dims.d_v == shape.d_v);
    if (!fits) {
        return "(d_qk, d_v): got (" + std::to_string(shape.d_qk) + ", " + std::to_string(shape.d_v) + "), wanted " +
               dims_list(kernel);
    }
    if (kernel.page_size != 0 && kernel.page_size != shape.page_size) {
        return "page_size: got " + std::to_string(shape.page_size) + ", wanted " + std::to_string(kernel.page_size);
    }
    return std::nullopt;
}

// Row tiles that a worker advances side by side, one a CTA. An even number works in clusters of two CTAs that share
// each KV tile; further clusters of the worker find the tile in L2. A small odd number works in single CTAs, since the
// idle half of the last cluster would cost more than the sharing brings. As many as divide the row tiles and leave few
// SMs idle.
int row_tiles_per_worker(int tiles, int num_processors) {
    if (tiles % 2 == 1 && tiles <= 7) return tiles <= num_processors ? tiles : 1;
    const int even = tiles + tiles % 2;
    for (int candidate : {8, 6, 4}) {
        const bool few_idle = num_processors % candidate * 25 <= num_processors;
        if (even % candidate == 0 && candidate <= num_processors && few_idle) return candidate;
    }
    return 2;
}

Status plan_gpu_workers(DecodePlan& plan) {
    const DecodeShape& shape = plan.shape;
    const int heads = static_cast<int>(shape.h_q / shape.h_kv);
    const int tiles = core::make_row_tiling(heads, static_cast<int>(shape.s_q), sm90_dense::kRowTile).tiles;
    plan.row_tiles_per_worker = row_tiles_per_worker(tiles, plan.device.num_processors);
    const int most = core::min_of(plan.device.num_processors / plan.row_tiles_per_worker, sm90_dense::kMaxWorkers);
    if (most < 1) {
        return invalid_argument("device.num_processors: got " + std::to_string(plan.device.num_processors) +
                                ", wanted at least " + std::to_string(plan.row_tiles_per_worker));
    }
    const int asked = plan.options.num_workers;
    plan.num_workers = asked > 0 && asked < most ? asked : most;
    plan.reason =
        std::to_string(std::int64_t{heads} * shape.s_q) + " rows a KV head make " + std::to_string(tiles) +
        " row tile" + (tiles == 1 ? "" : "s") + " of " + std::to_string(sm90_dense::kRowTile) + " on " +
        text(plan.device) + ": " + std::to_string(plan.num_workers) + " workers of " +
        (plan.row_tiles_per_worker == 1 ? "one CTA"
                                        : std::to_string(plan.row_tiles_per_worker) + " CTAs that share every KV tile");
    return {};
}

void plan_cpu_workers(DecodePlan& plan) {
    plan.row_tiles_per_worker = 1;
    const int asked = plan.options.num_workers > 0 ? plan.options.num_workers : plan.device.num_processors;
    plan.num_workers = core::min_of(asked, backends::cpu::kMaxThreads);
    plan.reason = "the tensors are on the CPU: " + std::to_string(plan.num_workers) + " thread" +
                  (plan.num_workers == 1 ? "" : "s") + ", fixed chunks of " +
                  std::to_string(plan::kInvariantChunk * plan::kKeyTile) + " tokens";
}

Status check_options(const DeviceInfo& device, const PlanOptions& options) {
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
        if (options.kernel == kernel.name) return {};
        known += (known.empty() ? "" : ", ") + std::string(kernel.name);
    }
    return invalid_argument("kernel: got '" + options.kernel + "', wanted one of " + known);
}

// The reason a caller can act on when nothing fits: that of the forced kernel, or of the first kernel for such a
// device.
Status nothing_fits(const DecodePlan& plan) {
    for (std::size_t i = 0; i < plan.verdicts.size(); ++i) {
        const KernelVerdict& verdict = plan.verdicts[i];
        const bool forced = plan.options.kernel == verdict.kernel;
        const bool same_device = kernel_catalog()[i].device == plan.device.device.type;
        if (forced || (plan.options.kernel.empty() && same_device)) {
            return unsupported(verdict.kernel + ": " + verdict.reason);
        }
    }
    return unsupported("device: no kernel of the catalogue runs on " + text(plan.device));
}

}  // namespace

Result<DecodePlan> plan_decode(const DecodeShape& shape, const DeviceInfo& device, const PlanOptions& options) {
    if (Status status = plan::check_shape(shape); !status.ok()) return status;
    if (Status status = check_options(device, options); !status.ok()) return status;

    DecodePlan plan;
    plan.shape = shape;
    plan.options = options;
    plan.device = device;
    const KernelInfo* chosen = nullptr;
    for (const KernelInfo& kernel : kernel_catalog()) {
        KernelVerdict verdict{.kernel = kernel.name, .chosen = false, .reason = {}};
        const bool wanted = options.kernel.empty() || options.kernel == kernel.name;
        if (std::optional<std::string> reason = why_not(kernel, shape, device)) {
            verdict.reason = *reason;
        } else if (!wanted) {
            verdict.reason = "fits, but options.kernel asks for " + options.kernel;
        } else if (chosen != nullptr) {
            verdict.reason = std::string("fits, but ") + chosen->name + " comes first";
        } else {
            verdict.chosen = true;
            chosen = &kernel;
        }
        plan.verdicts.push_back(std::move(verdict));
    }
    if (chosen == nullptr) return nothing_fits(plan);

    plan.kernel_id = chosen->id;
    plan.kernel = chosen->name;
    if (chosen->device == DeviceType::kCpu) {
        plan_cpu_workers(plan);
    } else if (Status status = plan_gpu_workers(plan); !status.ok()) {
        return status;
    }
    for (KernelVerdict& verdict : plan.verdicts) {
        if (verdict.chosen) verdict.reason = plan.reason;
    }
    Result<plan::WorkspaceLayout> layout = plan::workspace_layout(plan);
    if (!layout.ok()) return layout.status();
    plan.workspace_bytes = layout.value().total;
    return plan;
}

}  // namespace flashmla
