#include "reference/merge.hpp"

#include <cmath>
#include <limits>

#include "reference/decode.hpp"
#include "reference/element.hpp"

namespace flashmla::reference {

MergedRow merge_row(const MergeArgs& args, std::int64_t request, std::int64_t token, std::int64_t head) {
    const std::size_t parts = args.outs.size();
    const bool batched = args.out.rank == 4;
    const auto d_v = static_cast<std::size_t>(args.out.shape[batched ? 3 : 2]);
    std::vector<Partial> partials(parts);
    for (std::size_t i = 0; i < parts; ++i) {
        const TensorView& lse = args.lses[i];
        partials[i].lse = batched ? element(lse, {request, head, token}) : element(lse, {token, head});
        for (std::size_t d = 0; d < d_v; ++d) {
            const auto column = static_cast<std::int64_t>(d);
            partials[i].out.push_back(batched ? element(args.outs[i], {request, token, head, column})
                                              : element(args.outs[i], {token, head, column}));
        }
    }
    for (const Partial& part : partials) {
        if (!std::isnan(part.lse)) continue;
        const double nan = std::numeric_limits<double>::quiet_NaN();
        return {std::vector<double>(d_v, nan), std::vector<double>(d_v), nan, 0};
    }
    const Partial merged = merge(partials);

    // A weight and the final factor are rounded to fp32 once each; then one rounding a part, and the one of the
    // product.
    constexpr double kUnit = 0x1p-24;
    const double sums = std::expm1((static_cast<double>(parts) + 4) * kUnit / (1 - kUnit));
    MergedRow row{merged.out, std::vector<double>(d_v), merged.lse, kUnit * std::abs(merged.lse)};
    if (std::isinf(merged.lse)) row.lse_bound = 0;
    for (std::size_t d = 0; d < d_v; ++d) {
        double magnitude = 0;
        for (const Partial& part : partials) {
            if (!std::isinf(part.lse)) magnitude += std::exp(part.lse - merged.lse) * std::abs(part.out[d]);
        }
        const double computed = sums * magnitude;
        row.out_bound[d] = computed + core::unit_roundoff(args.out.dtype) * (std::abs(merged.out[d]) + computed) +
                           core::underflow_error(args.out.dtype);
    }
    return row;
}

}  // namespace flashmla::reference
