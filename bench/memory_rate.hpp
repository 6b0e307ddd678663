// What the memory of this machine does, measured over buffers beyond every cache.
#pragma once

#include <cstdint>
#include <vector>

namespace flashmla::bench {

struct MemoryRates {
    double read_gbps = 0;  // summing
    // memset: full lines, written without being read first where the C library does so. Never to zero: a Zen 3 core
    // wrote zeros at up to 37 GB/s and other bytes at 18.
    double write_gbps = 0;
    double copy_gbps = 0;           // memcpy, bytes read plus bytes written
    double streamed_copy_gbps = 0;  // the same past the caches: no line is read in order to be written
    double best() const;            // the largest of the four
};

struct MemoryMeasurement {
    MemoryRates wall;         // all threads together, by the wall clock
    MemoryRates of_cpu_time;  // bytes a second that a thread was given a core: other load disturbs it less
};

// With `threads` threads at once; the best of `samples` passes each.
MemoryMeasurement measure_memory(int threads, int samples);

// One pass at a time, in turns with what is compared with it: a virtual machine's neighbors take from both.
class StreamedCopy {
public:
    StreamedCopy();
    double gbps(int threads);  // bytes read plus bytes written, by the wall clock

private:
    std::vector<std::uint64_t> from_;
    std::vector<std::uint64_t> to_;
};

}  // namespace flashmla::bench
