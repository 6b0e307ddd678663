#include "simulator/parity_kernel.hpp"

namespace flashmla::simulator {

namespace {
struct Vector128 {
    static constexpr int kLanes = 4;
    typedef float Vector __attribute__((vector_size(16), aligned(4), may_alias));
};
}  // namespace

void parity_item_vector128(const ParityProblem& problem, std::int64_t request, std::int64_t head,
                           ParityScratch& scratch) {
    ParityKernel<Vector128>::item(problem, request, head, scratch);
}

}  // namespace flashmla::simulator
