#include "backends/cpu/work_queue.hpp"

#include "core/planted_fault.hpp"

namespace flashmla::backends::cpu {

int task_length(const LatentCall& call, int request) {
    const DecodeShape& shape = call.shape;
    const int capacity = core::key_capacity(shape);
    int length = core::request_length(call.lengths, call.lengths_are_cumulative, capacity, request);
    if (core::planted(core::PlantedFault::kTailNotMasked)) {
        // The rest of the last page; further on lie pages that may not exist.
        const std::int64_t pages = core::ceil_div<std::int64_t>(length, shape.page_size);
        length = static_cast<int>(core::min_of<std::int64_t>(pages * shape.page_size, capacity));
    }
    return length;
}

int tile_keys(const LatentCall& call, const core::RowTiling& tiling, const Task& task) {
    const int row_tile = task.unit % tiling.tiles;
    if (call.sparse()) return call.list_entries(task.request, tiling.first_token(row_tile));
    return core::visible_keys(task.length, tiling.s_q, tiling.end_token(row_tile) - 1, call.shape.causal);
}

WorkQueue::WorkQueue(const LatentCall& call, const core::RowTiling& tiling, int threads)
    : call_(call),
      tiling_(tiling),
      num_slots_(slot_count(threads)),
      units_(tiling.tiles * static_cast<int>(call.shape.h_kv)),
      free_(num_slots_) {
    if (call_.shape.b > 0) enter_unit();
}

void WorkQueue::enter_unit() {
    if (next_.unit == 0 && !call_.sparse()) next_.length = task_length(call_, next_.request);
    const int keys = tile_keys(call_, tiling_, next_);
    next_.chunk = 0;
    // A unit without keys is a task too: its rows are written as zeros.
    next_.chunks = core::max_of(1, keys / kChunkTokens + (keys % kChunkTokens != 0));
}

bool WorkQueue::take(Task& task) {
    std::unique_lock lock(mutex_);
    slot_freed_.wait(lock, [this] { return free_ > 0 || next_.request >= call_.shape.b; });
    if (next_.request >= call_.shape.b) return false;
    int slot = 0;
    while (slots_[slot].state != State::kFree) ++slot;
    --free_;
    slots_[slot] = {.state = State::kWorking, .request = next_.request, .unit = next_.unit, .chunk = next_.chunk};
    task = next_;
    task.slot = slot;
    if (++next_.chunk == next_.chunks) {
        if (++next_.unit == units_) {
            next_.unit = 0;
            ++next_.request;
        }
        if (next_.request < call_.shape.b) {
            enter_unit();
        } else {
            slot_freed_.notify_all();  // threads that wait for a slot have nothing left to wait for
        }
    }
    return true;
}

WorkQueue::Slot* WorkQueue::park(const Task& task) {
    Slot& mine = slots_[task.slot];
    if (task.chunk == 0) {
        mine.state = State::kAccumulator;
        mine.next = 1;
        return &mine;
    }
    mine.state = State::kParked;
    for (Slot& slot : slots_) {
        if (slot.state == State::kAccumulator && slot.request == task.request && slot.unit == task.unit) return &slot;
    }
    return nullptr;
}

int WorkQueue::find_parked(const Slot& accumulator) const {
    for (const Slot& slot : slots_) {
        if (slot.state == State::kParked && slot.request == accumulator.request && slot.unit == accumulator.unit &&
            slot.chunk == accumulator.next) {
            return index(&slot);
        }
    }
    return -1;
}

void WorkQueue::free_slot(int slot) {
    slots_[slot].state = State::kFree;
    ++free_;
    slot_freed_.notify_one();
}

void WorkQueue::release(int slot) {
    const std::lock_guard lock(mutex_);
    free_slot(slot);
}

}  // namespace flashmla::backends::cpu
