// Signals between CTAs of one cooperative launch: words in global memory, 0 until given.
#pragma once

namespace flashmla::gpu {

// Makes everything that the thread, and those it has synchronised with, wrote before visible to who awaits the signal.
__device__ __forceinline__ void give_signal(unsigned int* signal) {
    __threadfence();
    asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(signal) : "memory");
}

__device__ __forceinline__ void await_signal(const unsigned int* signal) {
    unsigned int seen;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(signal) : "memory");
    } while (seen == 0);
}

}  // namespace flashmla::gpu
