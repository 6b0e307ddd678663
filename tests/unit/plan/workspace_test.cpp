// The workspace: regions in order, aligned, disjoint, a function of shapes and workers alone.
#include <gtest/gtest.h>

#include <string>

#include "flashmla/flashmla.hpp"
#include "plan/workspace.hpp"

namespace flashmla::test {
namespace {

Result<DecodePlan> gpu_plan(const DecodeShape& shape, bool batch_invariant = false, int workers = 0) {
    PlanOptions options;
    options.batch_invariant = batch_invariant;
    options.num_workers = workers;
    return plan_decode(shape, named_device("h200").value(), options);
}

void expect_sound(const DecodePlan& plan) {
    std::size_t end = 0;
    for (const WorkspaceRegion& region : workspace_regions(plan)) {
        EXPECT_EQ(region.offset % 256, 0u) << region.name;
        EXPECT_GE(region.offset, end) << region.name;
        EXPECT_LT(region.offset - end, 256u) << region.name;
        end = region.offset + region.bytes;
    }
    EXPECT_GE(plan.workspace_bytes, end);
    EXPECT_LT(plan.workspace_bytes - end, 256u);
}

TEST(Workspace, BalancedScheduleHasTwoSlotsAWorker) {
    const DecodePlan plan = gpu_plan({.b = 100'000, .h_q = 128, .max_pages = 50'000}).value();
    const plan::GpuWorkspace workspace = plan::gpu_workspace(plan);
    EXPECT_EQ(workspace.slots, 132);
    EXPECT_EQ(workspace.max_chunks, 0);
    EXPECT_EQ(workspace.partial_rows_offset, 0u);
    EXPECT_EQ(workspace.partial_out_offset, 132u * 2 * 64 * 16);
    EXPECT_EQ(workspace.total, workspace.partial_out_offset + 132ull * 2 * 64 * 512 * 2);
    EXPECT_EQ(plan.workspace_bytes, workspace.total);
    expect_sound(plan);
    // Neither the batch nor the table's width matters.
    EXPECT_EQ(gpu_plan({.b = 0, .h_q = 128, .max_pages = 0}).value().workspace_bytes, plan.workspace_bytes);
}

TEST(Workspace, BatchInvariantScheduleHasASlotForEveryChunk) {
    const DecodePlan plan = gpu_plan({.b = 3, .s_q = 4, .h_q = 256, .h_kv = 2, .max_pages = 65}, true).value();
    const plan::GpuWorkspace workspace = plan::gpu_workspace(plan);
    EXPECT_EQ(plan.row_tiles_per_worker, 8);
    EXPECT_EQ(workspace.max_chunks, 3);     // 65 pages are 65 key tiles: chunks of 32, 32 and 1
    EXPECT_EQ(workspace.slots, 3 * 2 * 3);  // the 8 row tiles of a KV head are one unit
    EXPECT_EQ(plan.workspace_bytes, workspace.total);
    expect_sound(plan);
}

TEST(Workspace, NoSlotsWhenNoRequestCanHaveTwoChunks) {
    for (const std::int64_t max_pages : {0, 1, 32}) {
        const DecodePlan plan = gpu_plan({.b = 7, .h_q = 16, .max_pages = max_pages}, true).value();
        EXPECT_EQ(plan::gpu_workspace(plan).slots, 0);
        expect_sound(plan);
    }
    const DecodePlan plan = gpu_plan({.b = 7, .h_q = 16, .max_pages = 33}, true).value();
    EXPECT_EQ(plan::gpu_workspace(plan).slots, 14);
}

TEST(Workspace, SlotsThatDoNotFitAnIntAreRefused) {
    const Result<DecodePlan> plan = gpu_plan({.b = 1'000'000, .s_q = 64, .h_q = 128, .max_pages = 1 << 16}, true);
    EXPECT_EQ(plan.status().code(), StatusCode::kUnsupported);
    EXPECT_NE(plan.status().message().find("batch_invariant: "), std::string::npos) << plan.status().message();
}

TEST(Workspace, CpuPlansAreSoundToo) {
    DeviceInfo device;
    device.num_processors = 8;
    for (const std::int64_t b : {0, 1, 1000}) {
        expect_sound(plan_decode({.b = b, .h_q = 128, .max_pages = 4096}, device).value());
    }
}

TEST(Workspace, LargestShapesOverflowNothing) {
    constexpr std::int64_t kMaxInt = 2'147'483'647;
    DeviceInfo device;
    device.num_processors = 4096;
    const DecodeShape largest{
        .b = 64, .s_q = 1 << 29, .h_q = 2, .page_size = kMaxInt, .max_pages = kMaxInt, .causal = true};
    const Result<DecodePlan> plan = plan_decode(largest, device);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    expect_sound(plan.value());
    EXPECT_EQ(plan::max_chunks(largest), 1 << 20);
}

TEST(WorkShape, FollowsThePlan) {
    const DecodePlan plan = gpu_plan({.b = 5, .s_q = 3, .h_q = 128, .h_kv = 2, .max_pages = 9, .causal = true}).value();
    const plan::WorkShape work = plan::make_work_shape(plan);
    EXPECT_EQ(work.rows.tiles, 3);
    EXPECT_EQ(work.row_tiles_per_unit, 3);  // all of a KV head's: one unit each
    EXPECT_EQ(work.units(), 2);
    EXPECT_EQ(work.chunk_tiles, 0);
    EXPECT_TRUE(work.causal);
    PlanOptions invariant;
    invariant.batch_invariant = true;
    const DecodePlan fixed = plan_decode(plan.shape, plan.device, invariant).value();
    EXPECT_EQ(plan::make_work_shape(fixed).chunk_tiles, plan::kInvariantChunk);
}

}  // namespace
}  // namespace flashmla::test
