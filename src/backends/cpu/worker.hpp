// One thread's way through the work queue: from a task to queries, key tiles, a partial result, and at last rows of out
// and lse.
#pragma once

#include <cstddef>

#include "backends/cpu/key_walk.hpp"
#include "backends/cpu/tile_kernels.hpp"
#include "backends/cpu/work_queue.hpp"

namespace flashmla::backends::cpu {

// The workspace cut into buffers: one set a thread, then the slots.
class Buffers {
public:
    Buffers(std::int64_t d_qk, std::int64_t d_v, int threads, void* workspace)
        : d_qk_(d_qk), d_v_(d_v), threads_(threads), base_(static_cast<float*>(workspace)) {}

    std::size_t total_bytes() const {
        return sizeof(float) *
               static_cast<std::size_t>(threads_ * thread_floats() + slot_count(threads_) * slot_floats());
    }
    float* keys(int thread) const { return base_ + thread * thread_floats(); }
    float* scratch(int thread) const { return keys(thread) + kKeyBufferFloats; }
    float* queries(int thread) const { return scratch(thread) + kScratchFloats; }
    Partial slot(int slot) const {
        float* max = base_ + threads_ * thread_floats() + slot * slot_floats();
        return {.out = max + 2 * kRowTile, .max = max, .sum = max + kRowTile};
    }

private:
    std::int64_t thread_floats() const { return kKeyBufferFloats + kScratchFloats + kRowTile * d_qk_; }
    std::int64_t slot_floats() const { return kRowTile * (d_v_ + 2); }

    std::int64_t d_qk_, d_v_;
    std::int64_t threads_;
    float* base_;
};

class Worker {
public:
    Worker(const LatentCall& call, const core::RowTiling& tiling, const TileKernels& kernels, const Buffers& buffers,
           WorkQueue& queue, int thread)
        : call_(call), tiling_(tiling), kernels_(kernels), buffers_(buffers), queue_(queue), thread_(thread) {}

    // Works until the queue is empty.
    void run();

private:
    void enter(const Task& task);
    void pack_queries(const Task& task) const;
    void attend_chunk(const Task& task) const;
    void write(const Task& task, const Partial& result);

    const LatentCall& call_;
    const core::RowTiling& tiling_;
    const TileKernels& kernels_;
    const Buffers& buffers_;
    WorkQueue& queue_;
    int thread_;

    // Of the task in hand.
    TileShape shape_;
    int first_token_ = 0;
    int first_head_ = 0;  // among all query heads
    int tile_heads_ = 1;
    int visible_[kRowTile] = {};  // keys that each row sees; sparse: list entries
    float scale_ = 0;             // of q . k: softmax_scale and what the codes are worth
    float value_scale_ = 1;       // of the result: what the codes are worth
};

// Runs a call with the functions of one instruction set, on as many threads as pay, at most the plan's.
void run_threads(const LatentCall& call, const TileKernels& kernels);

}  // namespace flashmla::backends::cpu
