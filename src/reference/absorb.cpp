#include "reference/absorb.hpp"

#include <cmath>

#include "reference/element.hpp"

namespace flashmla::reference {

ProjectedRow project_row(const AbsorbArgs& args, Projection projection, std::int64_t n, std::int64_t h) {
    const bool absorb = projection == Projection::kAbsorbQuery;
    const std::int64_t depth = args.x.shape[2];
    const std::int64_t columns = args.out.shape[2];
    ProjectedRow row;
    // fp32 sums in any order; products of fp32 inputs round too.
    const double unit = 0x1p-24;
    const double sums = std::expm1((static_cast<double>(depth) + 2) * unit / (1 - unit));
    for (std::int64_t j = 0; j < columns; ++j) {
        double sum = 0;
        double magnitude = 0;
        for (std::int64_t i = 0; i < depth; ++i) {
            const double weight = absorb ? element(args.weight, {h, i, j}) : element(args.weight, {h, j, i});
            const double product = element(args.x, {n, h, i}) * weight;
            sum += product;
            magnitude += std::abs(product);
        }
        const double computed = sums * magnitude;
        row.out.push_back(sum);
        row.bound.push_back(computed + core::unit_roundoff(args.out.dtype) * (std::abs(sum) + computed) +
                            core::underflow_error(args.out.dtype));
    }
    return row;
}

}  // namespace flashmla::reference
