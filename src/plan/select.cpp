// A decode plan: the kernel, its workers, its workspace.
#include <string>

#include "backends/sm90/decode_dense/config.hpp"
#include "core/row_tiling.hpp"
#include "flashmla/plan.hpp"
#include "plan/choose.hpp"
#include "plan/shape.hpp"
#include "plan/workspace.hpp"

namespace flashmla {
namespace {

namespace sm90_dense = backends::sm90::decode_dense;

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

std::string ctas_of_a_worker(int ctas) {
    if (ctas == 1) return "one CTA";
    const std::string number = std::to_string(ctas);
    if (ctas % 2 == 1) return number + " single CTAs that find each other's KV tiles in L2";
    return number +
           (ctas == 2 ? " CTAs that share every KV tile" : " CTAs, in clusters of two that share every KV tile");
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
    plan.reason = std::to_string(std::int64_t{heads} * shape.s_q) + " rows a KV head make " + std::to_string(tiles) +
                  " row tile" + (tiles == 1 ? "" : "s") + " of " + std::to_string(sm90_dense::kRowTile) + " on " +
                  plan::text(plan.device) + ": " + std::to_string(plan.num_workers) + " workers of " +
                  ctas_of_a_worker(plan.row_tiles_per_worker);
    return {};
}

void plan_cpu_workers(DecodePlan& plan) {
    plan.row_tiles_per_worker = 1;
    plan.num_workers = plan::cpu_workers(plan.device, plan.options);
    plan.reason = "the tensors are on the CPU: " + plan::threads_text(plan.num_workers) + ", fixed chunks of " +
                  std::to_string(plan::kInvariantChunk * plan::kKeyTile) + " tokens";
}

}  // namespace

Result<DecodePlan> plan_decode(const DecodeShape& shape, const DeviceInfo& device, const PlanOptions& options) {
    if (Status status = plan::check_shape(shape); !status.ok()) return status;
    const plan::Demand demand{.operation = Operation::kDecode,
                              .dtype = shape.dtype,
                              .d_qk = shape.d_qk,
                              .d_v = shape.d_v,
                              .format = shape.format,
                              .sparse = shape.topk > 0,
                              .attn_sink = shape.attn_sink,
                              .page_size = shape.page_size};
    Result<plan::Choice> choice = plan::choose_kernel(demand, device, options);
    if (!choice.ok()) return choice.status();

    DecodePlan plan;
    plan.shape = shape;
    plan.options = options;
    plan.device = device;
    plan.verdicts = choice.value().verdicts;
    const KernelInfo* chosen = choice.value().kernel;
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
