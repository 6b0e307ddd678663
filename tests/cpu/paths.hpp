// The code paths of the CPU kernel that this machine can test.
#pragma once

#include <string>
#include <vector>

#include "flashmla/decode.hpp"
#include "reference/error_bound.hpp"

namespace flashmla::cpu_tests {

// Sanitizers look at the kernel, not at its numbers, and slow everything down five to twenty times.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

struct CpuPath {
    std::string name;
    bool emulated = false;
    Status (*run)(const CpuPath& path, const DecodeArgs& args, int num_workers) = nullptr;
};

// The native paths that this CPU has (only FLASHMLA_CPU_ISA's when that is set), then the templates of the AVX-512
// paths with their vectors and dot products emulated: everything of those paths but the instructions, on any machine
// (not under the thread sanitizer: the threads' work is the same on every path).
const std::vector<CpuPath>& cpu_paths();

// Those that are not emulated.
std::vector<CpuPath> native_paths();

inline Status run(const CpuPath& path, const DecodeArgs& args, int num_workers = 2) {
    return path.run(path, args, num_workers);
}

// Where a path rounds when queries of `dtype` meet a cache of `format`.
reference::RoundingModel rounding_model(const CpuPath& path, DType dtype, CacheFormat format);

// Sets FLASHMLA_CPU_ISA and puts the old value back. The variable belongs to the process: for one thread at a time.
class ForcedIsa {
public:
    explicit ForcedIsa(const char* value);
    ~ForcedIsa();
    ForcedIsa(const ForcedIsa&) = delete;
    ForcedIsa& operator=(const ForcedIsa&) = delete;

private:
    bool was_set_ = false;
    std::string before_;
};

}  // namespace flashmla::cpu_tests
