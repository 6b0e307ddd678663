// Random sleeps where roles hand over to each other, in builds that look for lost hand-overs (FLASHMLA_JITTER): what
// needs one role to be late by microseconds shows in the first launches there, and in one of thousands otherwise.
#pragma once

namespace flashmla::gpu {

#if defined(FLASHMLA_JITTER)
// One time in 2^rarity, up to 16 us; for the whole warp. `place` makes warps and places differ.
template <int rarity = 5>
__device__ __forceinline__ void jitter(unsigned int place) {
    unsigned int random;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(random));
    random = (random + place * 0x9e3779b9u + blockIdx.x * 0x85ebca6bu) * 2654435761u;
    random = (random ^ random >> 15) * 0x2c1b3c6du;
    random = __shfl_sync(~0u, random, 0);
    if (random >> (32 - rarity) == 0) __nanosleep(random >> 3 & 0x3fff);
}
#else
template <int rarity = 5>
__device__ __forceinline__ void jitter(unsigned int) {}
#endif

}  // namespace flashmla::gpu
