// What a plan would do with given lengths: the schedule worker by worker, and the time that a device needs at least.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "flashmla/plan.hpp"
#include "flashmla/status.hpp"

namespace flashmla {

// A run of key tiles that one worker does for a group of row tiles of one request and KV head.
struct SchedulePiece {
    int request = 0;
    int kv_head = 0;
    int first_row_tile = 0;
    int row_tiles = 0;
    int key_tile_begin = 0;  // half-open; begin == end for a group that sees no key: it is visited to write zeros
    int key_tile_end = 0;
    bool partial = false;  // one of several pieces of its group: goes through the workspace and is merged
};

struct WorkerSchedule {
    std::vector<SchedulePiece> pieces;
    std::int64_t cost = 0;  // key tiles + visit_cost for every piece
};

struct ScheduleExplanation {
    int key_tile_tokens = 0;
    int visit_cost = 0;       // of a piece, in key tiles
    int chunk_key_tiles = 0;  // > 0: groups are cut at multiples of this only, whatever else is in the batch
    int row_tiles = 0;        // of one (request, KV head)
    std::vector<WorkerSchedule> workers;
    std::int64_t max_cost = 0;
    double mean_cost = 0;
    std::int64_t cost_bound = 0;  // max_cost never exceeds it (docs/scheduling.md)
    std::int64_t partial_pieces = 0;
};

// `lengths`: one a request, 0 <= length <= max_pages * page_size. On the CPU threads take chunks as they come free, so
// there the workers show an even share of the fixed chunks rather than who does what.
Result<ScheduleExplanation> explain_schedule(const DecodePlan& plan, std::span<const std::int32_t> lengths);

struct Prediction {
    double kv_bytes = 0;
    double q_bytes = 0;
    double out_bytes = 0;  // out and lse
    double partial_bytes =
        0;  // written and read again; mostly stays in the L2 cache, so it takes no part in memory_seconds
    double flops = 0;
    double memory_seconds = 0;   // 0 when the device's rate is not known
    double compute_seconds = 0;  // likewise
    double roofline_seconds = 0;
    bool memory_bound = false;
};

Result<Prediction> predict_decode(const DecodePlan& plan, std::span<const std::int32_t> lengths);

struct WorkspaceRegion {
    std::string name;
    std::size_t offset = 0;
    std::size_t bytes = 0;
};

// The parts of the workspace, in order.
std::vector<WorkspaceRegion> workspace_regions(const DecodePlan& plan);

}  // namespace flashmla
