#include "cpu/allocations.hpp"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> allocations{0};
std::atomic<std::int64_t> bytes_in_use{0};
std::atomic<std::int64_t> most_bytes{0};

void* counted(void* memory) {
    if (memory == nullptr) return nullptr;
    ++allocations;
    const auto bytes = static_cast<std::int64_t>(malloc_usable_size(memory));
    const std::int64_t now = bytes_in_use += bytes;
    std::int64_t most = most_bytes;
    while (most < now && !most_bytes.compare_exchange_weak(most, now)) {
    }
    return memory;
}

void* aligned(std::size_t bytes, std::align_val_t alignment) {
    const auto step = static_cast<std::size_t>(alignment);
    return counted(std::aligned_alloc(step, (bytes + step - 1) / step * step));
}

void* or_throw(void* memory) {
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

void release(void* memory) {
    if (memory != nullptr) bytes_in_use -= static_cast<std::int64_t>(malloc_usable_size(memory));
    std::free(memory);
}

}  // namespace

// noinline: the compiler would otherwise see malloc behind one operator and not behind the other, and warn.
#define FLASHMLA_NOINLINE __attribute__((noinline))

FLASHMLA_NOINLINE void* operator new(std::size_t bytes) {
    return or_throw(counted(std::malloc(bytes != 0 ? bytes : 1)));
}
FLASHMLA_NOINLINE void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return or_throw(aligned(bytes, alignment));
}
// The address sanitizer's own one would not come here.
FLASHMLA_NOINLINE void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return aligned(bytes, alignment);
}
FLASHMLA_NOINLINE void operator delete(void* memory) noexcept { release(memory); }
FLASHMLA_NOINLINE void operator delete(void* memory, std::size_t) noexcept { release(memory); }
FLASHMLA_NOINLINE void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
FLASHMLA_NOINLINE void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace flashmla::cpu_tests {

std::int64_t allocation_count() { return allocations; }

PeakMemory::PeakMemory() : before_(bytes_in_use) { most_bytes = before_; }

std::int64_t PeakMemory::bytes() const { return most_bytes - before_; }

}  // namespace flashmla::cpu_tests
