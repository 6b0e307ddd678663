// The executable specification of merging partial results over whole tensors, and how far a kernel may be from it.
#pragma once

#include <vector>

#include "flashmla/merge.hpp"

namespace flashmla::reference {

// Of one (request, token, head) row; docs/numerics.md derives the bounds.
struct MergedRow {
    std::vector<double> out;
    std::vector<double> out_bound;  // |stored - out| <= out_bound, rounding to out's dtype included
    double lse = 0;
    double lse_bound = 0;
};

// Reads the parts' values and LSEs of the row as they are stored. Tensors of rank 3 have request 0 alone.
MergedRow merge_row(const MergeArgs& args, std::int64_t request, std::int64_t token, std::int64_t head);

}  // namespace flashmla::reference
