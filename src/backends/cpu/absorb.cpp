// The projections around absorbed attention: a task is a block of columns of one head, over all rows.
#include "backends/cpu/absorb.hpp"

#include <atomic>
#include <memory>
#include <new>

#include "backends/cpu/parallel.hpp"
#include "backends/cpu/select_kernels.hpp"
#include "core/planted_fault.hpp"

namespace flashmla::backends::cpu {
namespace {

// Starting a thread costs about as much as this many multiply-adds.
constexpr std::int64_t kMacsPerThread = 1 << 22;

ProjectArgs block_of(const core::AbsorbCall& call, std::int64_t head, std::int64_t first_column, float* scratch) {
    const auto element = static_cast<std::int64_t>(size_bytes(call.dtype));
    const auto at = [&](const void* base, std::int64_t elements) {
        return static_cast<const char*>(base) + elements * element;
    };
    const std::int64_t weight_step = call.transposed ? call.weight_row : 1;
    const bool wrong = core::planted(core::PlantedFault::kWeightOfWrongHead);
    const std::int64_t weight_head = wrong ? (head + 1) % call.h : head;
    return {.dtype = call.dtype,
            .x = at(call.x, head * call.x_head),
            .x_stride = call.x_row,
            .weight = at(call.weight, weight_head * call.weight_head + first_column * weight_step),
            .weight_stride = call.weight_row,
            .weight_by_column = call.transposed,
            .out = const_cast<char*>(at(call.out, head * call.out_head + first_column)),
            .out_stride = call.out_row,
            .rows = call.n,
            .depth = call.depth,
            .columns = static_cast<int>(core::min_of<std::int64_t>(kProjectColumns, call.columns - first_column)),
            .scratch = scratch};
}

}  // namespace

Status absorb(const core::AbsorbCall& call) {
    const Result<const TileKernels*> kernels = select_kernels(DType::kFloat32);
    if (!kernels.ok()) return kernels.status();
    const std::int64_t blocks = core::ceil_div<std::int64_t>(call.columns, kProjectColumns);
    const std::int64_t tasks = call.h * blocks;
    if (tasks == 0 || call.n == 0) return {};
    // A head with few rows still has its weights converted, which costs about as much as 16 rows.
    const std::int64_t macs = tasks * kProjectColumns * call.depth * (call.n + 16);
    const int threads = threads_for_bytes(core::min_of(tasks * kMacsPerThread, macs), call.threads, kMacsPerThread);
    const std::unique_ptr<float[]> scratch(
        new (std::nothrow) float[static_cast<std::size_t>(threads) * kProjectFloats]);
    if (scratch == nullptr) return {StatusCode::kOutOfMemory, "absorb: no host memory for its blocks"};
    std::atomic<std::int64_t> next{0};
    run_on_threads(threads, [&](int thread) {
        float* mine = scratch.get() + static_cast<std::ptrdiff_t>(thread) * kProjectFloats;
        for (std::int64_t task = next++; task < tasks; task = next++) {
            kernels.value()->project(block_of(call, task / blocks, task % blocks * kProjectColumns, mine));
        }
    });
    return {};
}

}  // namespace flashmla::backends::cpu
