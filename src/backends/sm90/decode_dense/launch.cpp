#include "backends/sm90/decode_dense/launch.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "backends/sm90/decode_dense/config.hpp"
#include "backends/sm90/decode_dense/kernels.hpp"
#include "backends/sm90/decode_dense/params.hpp"
#include "combine/merge_splits.hpp"
#include "core/planted_fault.hpp"
#include "gpu/error.hpp"
#include "gpu/tensor_map.hpp"
#include "plan/workspace.hpp"

namespace flashmla::backends::sm90::decode_dense {
namespace {

constexpr double kLog2E = 1.4426950408889634074;

const void* kernel_for(DType dtype, int cluster) {
    if (dtype == DType::kFloat16) return cluster == 1 ? single_fp16() : pair_fp16();
    return cluster == 1 ? single_bf16() : pair_bf16();
}

Status set_shared_memory(const void* kernel) {
    FLASHMLA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
    return {};
}

// Lets a kernel have kSharedBytes on the current device: once a device, because each call takes 0.23 us of a
// launch's 4. No stream is involved, so a graph may be recorded meanwhile.
Status allow_shared_memory(const void* kernel, DType dtype, int cluster, int device) {
    constexpr int kKernels = 4, kDevices = 64;
    static std::atomic<std::uint64_t> allowed[kKernels];  // a bit a device
    std::atomic<std::uint64_t>& devices = allowed[(dtype == DType::kFloat16 ? 2 : 0) + (cluster == 1 ? 0 : 1)];
    const std::uint64_t bit = device < kDevices ? std::uint64_t{1} << device : 0;  // 0: asked every time
    if ((devices.load(std::memory_order_acquire) & bit) != 0) return {};
    Status status = set_shared_memory(kernel);
    if (status.ok()) devices.fetch_or(bit, std::memory_order_release);
    return status;
}

// What was allowed belongs to a context: a device that was reset since, or is used through another context, refuses the
// launch, which is then tried once more.
cudaError_t launch_kernel(const cudaLaunchConfig_t& config, const void* kernel, void** arguments) {
    const cudaError_t error = cudaLaunchKernelExC(&config, kernel, arguments);
    if (error != cudaErrorInvalidValue) return error;
    (void)cudaGetLastError();
    return set_shared_memory(kernel).ok() ? cudaLaunchKernelExC(&config, kernel, arguments) : error;
}

// The row tile's box of q and out: heads x tokens, so that any packing is one copy. Heads beyond the last and tokens
// beyond the last are out of bounds: read as zero, never written.
struct RowBox {
    std::uint32_t heads, tokens;
};

RowBox row_box(const core::RowTiling& rows) {
    if (rows.tokens_per_tile == 1) return {kRowTile, 1};
    return {static_cast<std::uint32_t>(rows.tile_heads), static_cast<std::uint32_t>(kRowTile / rows.tile_heads)};
}

Status encode_rows(const char* tensor, const void* base, const DecodeShape& shape, const core::RowTiling& rows,
                   int columns, std::int64_t stride_b, std::int64_t stride_token, std::int64_t stride_head,
                   CUtensorMap* map) {
    const RowBox box = row_box(rows);
    return gpu::encode_tensor_map({.tensor = tensor,
                                   .base = base,
                                   .dtype = shape.dtype,
                                   .axes = {{columns, 1, 64},
                                            {rows.heads, stride_head, box.heads},
                                            {shape.s_q, stride_token, box.tokens},
                                            {shape.h_kv, rows.heads * stride_head, 1},
                                            {shape.b, stride_b, 1}},
                                   .rank = 5},
                                  map);
}

// Pairs prefetch whole pages into L2 themselves. A single
// CTA streams without, and gains by promotion: 0.307 against 0.316 ms at b 132, 64 heads, 8k.
Status encode_keys(const core::DecodeCall& call, const DecodeShape& shape, bool promote_l2, CUtensorMap* map) {
    const std::int64_t page_stride = core::planted(core::PlantedFault::kWrongPageStride)
                                         ? shape.page_size * shape.h_kv * shape.d_qk
                                         : call.strides.k_page;
    return gpu::encode_tensor_map({.tensor = "k_cache",
                                   .base = call.k_cache,
                                   .dtype = shape.dtype,
                                   .axes = {{kDimQk, 1, 64},
                                            {shape.page_size, call.strides.k_token, kKeyTile},
                                            {shape.h_kv, call.strides.k_head, 1},
                                            {call.num_pages, page_stride, 1}},
                                   .rank = 4,
                                   .promote_l2 = promote_l2},
                                  map);
}

}  // namespace

Status launch(const core::DecodeCall& call) {
    const DecodePlan& plan = *call.plan;
    const DecodeShape& shape = plan.shape;
    if (shape.b == 0) return {};
    const plan::GpuWorkspace workspace = plan::gpu_workspace(plan);
    char* const memory = static_cast<char*>(call.workspace);

    Params params{};
    params.work = plan::make_work_shape(plan);
    const core::RowTiling& rows = params.work.rows;
    const RowBox box = row_box(rows);
    params.shares = plan::fixed_shares(params.work, plan.num_workers);
    params.num_workers = plan.num_workers;
    params.max_chunks = workspace.max_chunks;
    params.box_rows = static_cast<int>(box.heads * box.tokens);
    // Masked scores are set to an infinity whose product with the scale is -inf: a scale of 0 would make NaN of it.
    params.scale_log2 = call.softmax_scale == 0 ? 0x1p-100f : static_cast<float>(call.softmax_scale * kLog2E);
    params.lengths = call.lengths;
    params.lengths_are_cumulative = call.lengths_are_cumulative;
    params.capacity = core::key_capacity(shape);
    params.block_table = call.block_table;
    params.table_stride = call.strides.table_b;
    params.num_pages = call.num_pages;
    params.page_stride_bytes = call.strides.k_page * 2;
    const bool whole_pages = shape.h_kv == 1 && call.strides.k_token == kDimQk;
    params.kv_base = whole_pages ? static_cast<const char*>(call.k_cache) : nullptr;
    params.out_base = call.out;
    params.out_b = call.strides.out_b;
    params.out_token = call.strides.out_token;
    params.out_head = call.strides.out_head;
    params.lse = call.lse;
    params.lse_b = call.strides.lse_b;
    params.lse_head = call.strides.lse_head;
    params.lse_token = call.strides.lse_token;
    params.partial_rows = reinterpret_cast<combine::PartialRow*>(memory + workspace.partial_rows_offset);
    params.partial_out = memory + workspace.partial_out_offset;

    const int cluster = plan.row_tiles_per_worker % 2 == 0 ? 2 : 1;
    // A pool without pages has nothing to read; the map needs some address all the same.
    core::DecodeCall mapped = call;
    if (call.num_pages == 0) mapped.k_cache = call.q;
    Status status = encode_keys(mapped, shape, cluster == 1, &params.kv);
    if (status.ok()) {
        status = encode_rows("q", call.q, shape, rows, kDimQk, call.strides.q_b, call.strides.q_token,
                             call.strides.q_head, &params.q);
    }
    if (status.ok()) {
        status = encode_rows("out", call.out, shape, rows, kDimV, call.strides.out_b, call.strides.out_token,
                             call.strides.out_head, &params.out);
    }
    if (!status.ok()) return status;

    const void* kernel = kernel_for(shape.dtype, cluster);
    status = allow_shared_memory(kernel, shape.dtype, cluster, plan.device.device.index);
    if (!status.ok()) return status;

    // Workers wait for each other's partial results, so all of them must be on the device at once: a cooperative launch
    // says so.
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = static_cast<unsigned>(cluster);
    attributes[0].val.clusterDim.y = 1;
    attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = plan.options.batch_invariant ? 0 : 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(plan.num_workers * plan.row_tiles_per_worker));
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = kSharedBytes;
    config.stream = static_cast<cudaStream_t>(call.stream);
    config.attrs = attributes;
    config.numAttrs = 2;
    void* arguments[] = {&params};
    FLASHMLA_CUDA_TRY(launch_kernel(config, kernel, arguments));

    if (!plan.options.batch_invariant || workspace.slots == 0) return {};
    return combine::launch_merge({.work = params.work,
                                  .max_chunks = params.max_chunks,
                                  .partial_rows = params.partial_rows,
                                  .partial_out = params.partial_out,
                                  .lengths = params.lengths,
                                  .lengths_are_cumulative = params.lengths_are_cumulative,
                                  .capacity = params.capacity,
                                  .out = params.out_base,
                                  .out_b = params.out_b,
                                  .out_token = params.out_token,
                                  .out_head = params.out_head,
                                  .lse = params.lse,
                                  .lse_b = params.lse_b,
                                  .lse_head = params.lse_head,
                                  .lse_token = params.lse_token},
                                 shape.dtype, plan.device.num_processors, call.stream);
}

}  // namespace flashmla::backends::sm90::decode_dense
