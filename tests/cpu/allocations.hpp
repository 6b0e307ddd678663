// What the program asks of the heap: allocations.cpp replaces the global operator new of this test program.
#pragma once

#include <cstdint>

namespace flashmla::cpu_tests {

// So far, by all threads.
std::int64_t allocation_count();

// The most bytes that were allocated at one time since the object was made, less those in use at that moment.
// One at a time; stacks of threads do not count.
class PeakMemory {
public:
    PeakMemory();
    std::int64_t bytes() const;

private:
    std::int64_t before_;
};

}  // namespace flashmla::cpu_tests
