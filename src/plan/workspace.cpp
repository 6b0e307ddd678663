#include "plan/workspace.hpp"

#include <limits>
#include <optional>
#include <string>

#include "backends/cpu/config.hpp"
#include "backends/cpu/latent_attention.hpp"
#include "backends/sm90/decode_dense/config.hpp"
#include "core/checked.hpp"
#include "core/problem.hpp"

namespace flashmla::plan {
namespace {

namespace sm90_dense = backends::sm90::decode_dense;

// Appends regions at aligned offsets; remembers when a size did not fit.
class LayoutBuilder {
public:
    void add(const char* name, std::optional<std::int64_t> bytes) {
        constexpr std::int64_t kAlign = kWorkspaceAlignment;
        if (!bytes || !total_) {
            total_ = std::nullopt;
            return;
        }
        layout_.regions.push_back({name, static_cast<std::size_t>(*total_), static_cast<std::size_t>(*bytes)});
        total_ = core::checked_sum(*total_, *bytes);
        if (total_) total_ = core::checked_sum(*total_, (kAlign - *total_ % kAlign) % kAlign);
    }

    Result<WorkspaceLayout> finish() && {
        if (!total_) return unsupported("workspace: its size does not fit 63 bits for this shape; split the batch");
        layout_.total = static_cast<std::size_t>(*total_);
        return std::move(layout_);
    }

private:
    WorkspaceLayout layout_;
    std::optional<std::int64_t> total_ = 0;
};

std::optional<std::int64_t> gpu_slots(const DecodePlan& plan) {
    if (!plan.options.batch_invariant) return std::int64_t{2} * plan.num_workers;
    const int chunks = max_chunks(plan.shape);
    if (chunks <= 1) return 0;
    return core::checked_product({plan.shape.b, make_work_shape(plan).units(), chunks});
}

Result<WorkspaceLayout> gpu_layout(const DecodePlan& plan) {
    const std::optional<std::int64_t> slots = gpu_slots(plan);
    if (!slots || *slots > std::numeric_limits<std::int32_t>::max()) {
        return unsupported(
            "batch_invariant: the block table allows more than 2^31 - 1 partial results (requests x units x chunks "
            "of " +
            std::to_string(kInvariantChunk * kKeyTile) + " tokens); split the batch or narrow the block table");
    }
    const std::int64_t rows = std::int64_t{plan.row_tiles_per_worker} * sm90_dense::kRowTile;
    constexpr std::int64_t kRowRecord = 16;  // bytes: combine::PartialRow
    constexpr std::int64_t kHalf = 2;        // bytes of an fp16 value
    LayoutBuilder builder;
    builder.add("partial_rows", core::checked_product({*slots, rows, kRowRecord}));
    builder.add("partial_out", core::checked_product({*slots, rows, plan.shape.d_v, kHalf}));
    return std::move(builder).finish();
}

Result<WorkspaceLayout> cpu_layout(const DecodePlan& plan) {
    const std::size_t bytes = backends::cpu::latent_workspace_bytes(plan.shape.d_qk, plan.shape.d_v, plan.num_workers);
    LayoutBuilder builder;
    if (bytes > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())) {
        builder.add("partials", std::nullopt);
    } else {
        builder.add("partials", static_cast<std::int64_t>(bytes));
    }
    return std::move(builder).finish();
}

}  // namespace

Result<WorkspaceLayout> workspace_layout(const DecodePlan& plan) {
    switch (plan.kernel_id) {
        case KernelId::kCpuDecodeDense:
        case KernelId::kCpuDecodeSparse: return cpu_layout(plan);
        case KernelId::kSm90DecodeDense: return gpu_layout(plan);
        default: break;  // no decode kernel
    }
    return unsupported("plan.kernel_id: not a kernel of the catalogue");
}

WorkShape make_work_shape(const DecodePlan& plan) {
    const bool cpu = plan.device.device.type == DeviceType::kCpu;
    // The CPU kernel always works in fixed chunks: its bits never depend on the batch.
    const bool fixed_chunks = plan.options.batch_invariant || cpu;
    const DecodeShape& shape = plan.shape;
    return count_units(
        {.rows = core::make_row_tiling(static_cast<int>(shape.h_q / shape.h_kv), static_cast<int>(shape.s_q),
                                       cpu ? backends::cpu::kRowTile : sm90_dense::kRowTile),
         .b = static_cast<int>(shape.b),
         .h_kv = static_cast<int>(shape.h_kv),
         .row_tiles_per_unit = plan.row_tiles_per_worker,
         .visit_cost = sm90_dense::kVisitCost,
         .chunk_tiles = fixed_chunks ? kInvariantChunk : 0,
         .causal = shape.causal,
         .by_groups = {}});
}

int max_chunks(const DecodeShape& shape) {
    return core::ceil_div(key_tiles(core::key_capacity(shape)), kInvariantChunk);
}

GpuWorkspace gpu_workspace(const DecodePlan& plan) {
    GpuWorkspace out;
    const Result<WorkspaceLayout> layout = gpu_layout(plan);
    if (!layout.ok()) return out;  // plan_decode refuses such shapes
    const std::vector<Region>& regions = layout.value().regions;
    out.partial_rows_offset = regions[0].offset;
    out.partial_out_offset = regions[1].offset;
    out.total = layout.value().total;
    out.slots = *gpu_slots(plan);
    out.max_chunks = plan.options.batch_invariant ? max_chunks(plan.shape) : 0;
    return out;
}

}  // namespace flashmla::plan
