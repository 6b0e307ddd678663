// Merging partial results: a row at a time, fp32 sums of the parts in their order, weights in double.
#include "backends/cpu/merge.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/parallel.hpp"
#include "backends/cpu/select_kernels.hpp"
#include "core/planted_fault.hpp"
#include "core/softmax_state.hpp"

namespace flashmla::backends::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kColumns = 1024;  // summed at a time, on the stack; whole vectors on every path

class RowMerger {
public:
    RowMerger(const core::MergeCall& call, const TileKernels& kernels, std::int64_t row)
        : call_(call),
          kernels_(kernels),
          request_(row / (call.s_q * call.h_q)),
          token_(row / call.h_q % call.s_q),
          head_(row % call.h_q) {}

    // Every LSE is read before anything is written: `out` and `lse` may be one of the parts.
    void run() const {
        double max = -kInfinity;
        bool nan = false;
        for (const TensorView& lse : call_.lses) {
            const float value = *lse_of(lse);
            nan = nan || std::isnan(value);
            if (!core::is_empty_lse(value)) max = std::max<double>(max, value);
        }
        double sum = 0;
        for (const TensorView& lse : call_.lses) sum += weight(lse, max);
        for (std::int64_t first = 0; first < call_.d_v; first += kColumns) {
            merge_columns(first, std::min(kColumns, call_.d_v - first), max, sum, nan);
        }
        const double merged = max == -kInfinity ? kInfinity : max + std::log(sum);
        *lse_of(call_.lse) = nan ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(merged);
    }

private:
    float* lse_of(const TensorView& lse) const {
        return static_cast<float*>(lse.data) + core::lse_strides(lse).offset(request_, token_, head_);
    }
    char* columns_of(const TensorView& out, std::int64_t first) const {
        const std::int64_t at = core::value_strides(out).offset(request_, token_, head_) + first;
        return static_cast<char*>(out.data) + at * static_cast<std::int64_t>(size_bytes(out.dtype));
    }
    double weight(const TensorView& lse, double max) const {
        const float value = *lse_of(lse);
        if (core::is_empty_lse(value)) return 0;
        return core::planted(core::PlantedFault::kMergeInBase2) ? std::exp2(value - max) : std::exp(value - max);
    }

    void merge_columns(std::int64_t first, std::int64_t count, double max, double sum, bool nan) const {
        float sums[kColumns];
        std::fill_n(sums, kColumns, nan ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
        for (std::size_t part = 0; part < call_.outs.size() && !nan; ++part) {
            const auto factor = static_cast<float>(weight(call_.lses[part], max));
            if (factor == 0) continue;  // its values may be NaN
            const TensorView& out = call_.outs[part];
            kernels_.add_weighted_row(out.dtype, columns_of(out, first), count, factor, sums);
        }
        const float factor = sum > 0 ? static_cast<float>(1 / sum) : 1;
        kernels_.store_scaled_row(call_.out.dtype, sums, count, factor, columns_of(call_.out, first));
    }

    const core::MergeCall& call_;
    const TileKernels& kernels_;
    std::int64_t request_, token_, head_;
};

}  // namespace

Status merge(const core::MergeCall& call) {
    const Result<const TileKernels*> kernels = select_kernels(DType::kFloat32);
    if (!kernels.ok()) return kernels.status();
    const std::int64_t rows = call.b * call.s_q * call.h_q;
    const std::int64_t row_bytes = call.d_v * 4 * static_cast<std::int64_t>(call.outs.size() + 1);
    const int threads = threads_for_bytes(rows * row_bytes, call.threads);
    run_on_threads(threads, [&](int thread) {
        const Range mine = even_share(rows, threads, thread);
        for (std::int64_t row = mine.begin; row < mine.end; ++row) RowMerger(call, *kernels.value(), row).run();
    });
    return {};
}

}  // namespace flashmla::backends::cpu
