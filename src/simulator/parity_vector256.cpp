#if defined(__x86_64__)
// Everything with inline functions comes before the pragma, so that none of them is compiled for these instructions and
// then linked into code that runs elsewhere.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "simulator/parity.hpp"

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#include "simulator/parity_kernel.hpp"

namespace flashmla::simulator {

namespace {
struct Vector256 {
    static constexpr int kLanes = 8;
    typedef float Vector __attribute__((vector_size(32), aligned(4), may_alias));
};
}  // namespace

void parity_item_vector256(const ParityProblem& problem, std::int64_t request, std::int64_t head,
                           ParityScratch& scratch) {
    ParityKernel<Vector256>::item(problem, request, head, scratch);
}

}  // namespace flashmla::simulator
#pragma GCC pop_options
#endif
