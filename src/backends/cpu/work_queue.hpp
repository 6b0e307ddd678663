// Hands out the tasks of a call in a fixed order and merges their results in a fixed order, whatever the threads do.
//
// A *unit* is a row tile of one KV head of one request; a *task* is one chunk of a unit's keys. A task's result lives
// in a *slot*. The slot of chunk 0 becomes the unit's accumulator; the others are folded into it in chunk order, by
// whichever thread finishes the chunk that was missing. A thread whose chunk cannot be folded yet parks its slot and
// takes the next task; it waits only when no slot is free. That ends, because the lowest task in flight needs nothing
// but the slot it has.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "backends/cpu/config.hpp"
#include "backends/cpu/latent_call.hpp"
#include "core/causal.hpp"
#include "core/problem.hpp"
#include "core/row_tiling.hpp"

namespace flashmla::backends::cpu {

struct Task {
    int request = 0;
    int length = 0;  // keys of the request; dense
    int unit = 0;
    int chunk = 0;
    int chunks = 1;  // of the unit
    int slot = 0;
};

// Slots for a number of threads: one a thread to work in, and as many again (up to a bound) to park and accumulate in.
constexpr int slot_count(int threads) { return threads + core::min_of(threads, 16); }

// Keys of a request in a dense call, and keys (sparse: list entries) that any row of a task's row tile sees.
int task_length(const LatentCall& call, int request);
int tile_keys(const LatentCall& call, const core::RowTiling& tiling, const Task& task);

class WorkQueue {
public:
    WorkQueue(const LatentCall& call, const core::RowTiling& tiling, int threads);

    // The next task with a slot for it; false when there is none left.
    bool take(Task& task);

    // Ends a task. Calls fold(accumulator slot, slot, chunk) for every chunk whose turn has come. Returns the slot with
    // the unit's complete result, to be released by the caller, or -1 when chunks are missing.
    template <class Fold>
    int finish(const Task& task, const Fold& fold) {
        std::unique_lock lock(mutex_);
        Slot* unit = park(task);
        if (unit == nullptr || unit->folding)
            return -1;  // whoever completes chunk 0 or is folding now finds the parked slot
        for (; unit->next < task.chunks; ++unit->next) {
            const int from = find_parked(*unit);
            if (from < 0) return -1;
            unit->folding = true;
            lock.unlock();
            fold(index(unit), from, unit->next);
            lock.lock();
            unit->folding = false;
            free_slot(from);
        }
        return index(unit);
    }

    void release(int slot);

private:
    enum class State : std::uint8_t { kFree, kWorking, kParked, kAccumulator };
    struct Slot {
        State state = State::kFree;
        bool folding = false;
        int request = 0;
        int unit = 0;
        int chunk = 0;
        int next = 0;  // accumulator: the chunk to fold next
    };

    void enter_unit();
    Slot* park(const Task& task);
    int find_parked(const Slot& accumulator) const;
    void free_slot(int slot);
    int index(const Slot* slot) const { return static_cast<int>(slot - slots_.data()); }

    const LatentCall& call_;
    const core::RowTiling& tiling_;
    int num_slots_;
    int units_;  // a request
    int free_;
    std::mutex mutex_;
    std::condition_variable slot_freed_;
    Task next_;  // without slot
    std::array<Slot, slot_count(kMaxThreads)> slots_;
};

}  // namespace flashmla::backends::cpu
