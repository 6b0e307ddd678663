// The executable specification of the backward of dense prefill, and how far a kernel may be from it.
#pragma once

#include <cstdint>
#include <vector>

#include "flashmla/prefill.hpp"

namespace flashmla::reference {

// Values in row-major order of a contiguous tensor, with |stored - value| <= bound; docs/numerics.md derives the
// bounds.
struct Gradient {
    explicit Gradient(const TensorView& like);

    std::vector<double> value;
    std::vector<double> bound;
};

struct Gradients {
    Gradient dq, dk, dv;
};

enum class Forward {
    kAsStored,  // out and lse are inputs like any other: what a kernel computes from
    kExact,     // computed here: the true derivative
};

Gradients prefill_backward(const DensePrefillBackwardArgs& args, Forward forward);

}  // namespace flashmla::reference
