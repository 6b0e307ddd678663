#include "flashmla/explain.hpp"

#include <string>

#include "core/cost_model.hpp"
#include "core/problem.hpp"
#include "plan/schedule_table.hpp"
#include "plan/workspace.hpp"

namespace flashmla {
namespace {

Status check_lengths(const DecodeShape& shape, std::span<const std::int32_t> lengths) {
    if (shape.topk > 0) {
        return unsupported("plan: got one of sparse decode, wanted dense: the work of a sparse call follows its lists");
    }
    if (static_cast<std::int64_t>(lengths.size()) != shape.b) {
        return invalid_argument("lengths: got " + std::to_string(lengths.size()) +
                                ", wanted b = " + std::to_string(shape.b));
    }
    const int capacity = core::key_capacity(shape);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        if (lengths[i] >= 0 && lengths[i] <= capacity) continue;
        return invalid_argument("lengths: got " + std::to_string(lengths[i]) + " for request " + std::to_string(i) +
                                ", wanted 0 to " + std::to_string(capacity) + " = max_pages * page_size");
    }
    return {};
}

SchedulePiece public_piece(const plan::WorkShape& work, const plan::Piece& piece) {
    const int first = work.first_row_tile(piece.unit);
    return {.request = piece.request,
            .kv_head = work.kv_head(piece.unit),
            .first_row_tile = first,
            .row_tiles = core::min_of(work.row_tiles_per_unit, work.rows.tiles - first),
            .key_tile_begin = piece.tile_begin,
            .key_tile_end = piece.tile_end,
            .partial = piece.slot >= 0};
}

// Rows of the row tiles a piece works on, which is what its partial result holds.
std::int64_t piece_rows(const plan::WorkShape& work, const plan::Piece& piece) {
    const int first = work.first_row_tile(piece.unit);
    std::int64_t rows = 0;
    for (int tile = first; tile < core::min_of(first + work.row_tiles_per_unit, work.rows.tiles); ++tile) {
        rows += work.rows.rows(tile);
    }
    return rows;
}

// Output and log-sum-exp; on the GPU a record of 16 bytes (src/combine/partials.hpp) in its place.
double partial_row_bytes(const DecodePlan& plan) {
    const bool on_gpu = plan.kernel_id != KernelId::kCpuDecodeDense;
    const int value_bytes = on_gpu ? 2 : 4;
    const int scalars = on_gpu ? 4 : 1;
    return static_cast<double>(plan.shape.d_v * value_bytes + scalars * 4);
}

}  // namespace

Result<ScheduleExplanation> explain_schedule(const DecodePlan& plan, std::span<const std::int32_t> lengths) {
    if (Status status = check_lengths(plan.shape, lengths); !status.ok()) return status;
    const plan::WorkShape work = plan::make_work_shape(plan);
    const std::vector<plan::Cut> cuts = plan::worker_cuts(work, lengths, plan.num_workers);
    const int max_chunks = plan::max_chunks(plan.shape);
    const plan::ScheduleStats stats = plan::schedule_stats(work, lengths, cuts, max_chunks);

    ScheduleExplanation out{.key_tile_tokens = plan::kKeyTile,
                            .visit_cost = work.visit_cost,
                            .chunk_key_tiles = work.chunk_tiles,
                            .row_tiles = work.rows.tiles,
                            .workers = {},
                            .max_cost = stats.max_cost,
                            .mean_cost = stats.mean_cost,
                            .cost_bound = stats.cost_bound,
                            .partial_pieces = stats.partial_pieces};
    out.workers.resize(static_cast<std::size_t>(plan.num_workers));
    for (int worker = 0; worker < plan.num_workers; ++worker) {
        WorkerSchedule& schedule = out.workers[static_cast<std::size_t>(worker)];
        plan::for_each_piece(work, lengths, cuts, worker, max_chunks, [&](const plan::Piece& piece) {
            schedule.pieces.push_back(public_piece(work, piece));
            schedule.cost += work.visit_cost + piece.tile_end - piece.tile_begin;
        });
    }
    return out;
}

Result<Prediction> predict_decode(const DecodePlan& plan, std::span<const std::int32_t> lengths) {
    if (Status status = check_lengths(plan.shape, lengths); !status.ok()) return status;
    std::int64_t keys = 0;
    for (std::int32_t len : lengths) keys += len;
    const core::DecodeCost cost = core::decode_cost(plan.shape, keys);
    const core::Roofline roofline = core::roofline(cost, plan.device);

    const plan::WorkShape work = plan::make_work_shape(plan);
    const std::vector<plan::Cut> cuts = plan::worker_cuts(work, lengths, plan.num_workers);
    std::int64_t partial_rows = 0;
    for (int worker = 0; worker < plan.num_workers; ++worker) {
        plan::for_each_piece(work, lengths, cuts, worker, plan::max_chunks(plan.shape), [&](const plan::Piece& piece) {
            if (piece.slot >= 0) partial_rows += piece_rows(work, piece);
        });
    }
    constexpr double kWriteAndRead = 2;
    return Prediction{
        .kv_bytes = cost.kv_bytes,
        .q_bytes = cost.q_bytes,
        .out_bytes = cost.out_bytes,
        .partial_bytes = kWriteAndRead * static_cast<double>(partial_rows) * partial_row_bytes(plan),
        .flops = cost.flops,
        .memory_seconds = roofline.memory_seconds,
        .compute_seconds = roofline.compute_seconds,
        .roofline_seconds = roofline.seconds(),
        .memory_bound = roofline.memory_bound(),
    };
}

std::vector<WorkspaceRegion> workspace_regions(const DecodePlan& plan) {
    std::vector<WorkspaceRegion> out;
    const Result<plan::WorkspaceLayout> layout = plan::workspace_layout(plan);
    if (!layout.ok()) return out;  // plan_decode refuses such shapes
    for (const plan::Region& region : layout.value().regions) out.push_back({region.name, region.offset, region.bytes});
    return out;
}

}  // namespace flashmla
