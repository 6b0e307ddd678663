// The executable specification of the projections around absorbed attention, and how far a kernel may be from it.
#pragma once

#include <vector>

#include "flashmla/absorb.hpp"

namespace flashmla::reference {

struct ProjectedRow {
    std::vector<double> out;
    std::vector<double> bound;  // |stored - out| <= bound, rounding to out's dtype included
};

enum class Projection { kAbsorbQuery, kProjectOutput };

ProjectedRow project_row(const AbsorbArgs& args, Projection projection, std::int64_t n, std::int64_t h);

}  // namespace flashmla::reference
