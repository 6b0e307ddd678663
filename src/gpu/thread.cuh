// Where a thread stands in its warpgroup.
#pragma once

namespace flashmla::gpu {

struct WarpgroupPlace {
    int warp;  // 0..3
    int lane;  // 0..31
    __device__ __forceinline__ int thread() const { return 32 * warp + lane; }
};

// Read anew at every call (volatile): what is derived from it is then computed where it is needed. Otherwise the
// compiler lifts dozens of addresses out of the main loop of a kernel that has no registers to hold them, and spills.
__device__ __forceinline__ WarpgroupPlace place() {
    int tid;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(tid));
    return {tid / 32 % 4, tid % 32};
}

// The same value in every lane, said so that ptxas believes it: what depends on it (loop counts, ring slots,
// descriptors) then lives in uniform registers, and control flow is not treated as divergent.
__device__ __forceinline__ int uniform(int value) { return __shfl_sync(~0u, value, 0); }

}  // namespace flashmla::gpu
