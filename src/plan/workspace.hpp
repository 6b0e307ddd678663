// The one workspace of a plan: named regions, a function of shapes and workers alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "flashmla/plan.hpp"
#include "flashmla/status.hpp"
#include "plan/split_schedule.hpp"

namespace flashmla::plan {

inline constexpr std::size_t kWorkspaceAlignment = 256;  // bytes, of the workspace and of every region

struct Region {
    const char* name = "";
    std::size_t offset = 0;
    std::size_t bytes = 0;
};

struct WorkspaceLayout {
    std::vector<Region> regions;  // in order of their offsets, which are multiples of kWorkspaceAlignment
    std::size_t total = 0;
};

// kUnsupported when the partial results cannot be counted in the kernel's integers.
Result<WorkspaceLayout> workspace_layout(const DecodePlan& plan);

// The schedule's view of a plan.
WorkShape make_work_shape(const DecodePlan& plan);

// Chunks of kInvariantChunk key tiles that the longest request the block table can address takes.
int max_chunks(const DecodeShape& shape);

// What the CUDA kernels need of the layout. Partial results of a slot: row_tiles_per_worker tiles of kRowTile rows,
// fp16 with an exponent a row and column half.
struct GpuWorkspace {
    std::size_t partial_rows_offset = 0;  // slots x row_tiles_per_worker x kRowTile records of 16 bytes
    std::size_t partial_out_offset = 0;   // slots x row_tiles_per_worker x kRowTile x d_v halves
    std::size_t total = 0;
    std::int64_t slots = 0;
    int max_chunks = 0;  // chunks a unit in batch-invariant mode; 0 in the balanced schedule
};

// For a plan that plan_decode returned.
GpuWorkspace gpu_workspace(const DecodePlan& plan);

}  // namespace flashmla::plan
