// merge as verify and bench see it.
#include <cmath>

#include "cli/exit_codes.hpp"
#include "cli/operations/operation_case.hpp"
#include "core/random.hpp"
#include "reference/element.hpp"
#include "reference/merge.hpp"

namespace flashmla::cli {
namespace {

class MergeCase final : public OperationCase {
public:
    MergeCase(const CaseShape& shape, const CaseDevice& device) : OperationCase(shape, device) {
        for (std::int64_t part = 0; part < shape.parts; ++part) {
            outs_.push_back(tensors_.normal(shape.dtype, {rows(), shape.heads, shape.d_v}, shape.deviation));
            lses_.push_back(tensors_.of(part_lse(part), {rows(), shape.heads}));
        }
        out_ = tensors_.output(shape.dtype, {rows(), shape.heads, shape.d_v});
        lse_ = tensors_.output(DType::kFloat32, {rows(), shape.heads});
    }

    Status run() override {
        return merge({.outs = outs_, .lses = lses_, .out = out_, .lse = lse_}, device_.buffers.stream());
    }

    RowCheck check(std::int64_t count) override {
        std::vector<TensorView> outs;
        std::vector<TensorView> lses;
        for (const TensorView& view : outs_) outs.push_back(tensors_.on_host(view));
        for (const TensorView& view : lses_) lses.push_back(tensors_.on_host(view));
        const MergeArgs args{.outs = outs, .lses = lses, .out = tensors_.on_host(out_), .lse = tensors_.on_host(lse_)};
        const std::vector<std::int64_t> sample = sampled(rows() * shape_.heads, count, shape_.seed);
        return hold_on_threads(sample, device_.threads, [&](std::int64_t row) -> std::vector<CheckedRow> {
            const std::int64_t n = row / shape_.heads;
            const std::int64_t h = row % shape_.heads;
            const reference::MergedRow exact = reference::merge_row(args, 0, n, h);
            const std::string where = "row " + std::to_string(n) + " head " + std::to_string(h);
            return {{exact.out, exact.out_bound, row_of(args.out, n, h), where + " out"},
                    {{exact.lse}, {exact.lse_bound}, {reference::element(args.lse, {n, h})}, where + " lse"}};
        });
    }

    double flops() const override {
        return 2 * static_cast<double>(shape_.parts * rows()) * static_cast<double>(shape_.heads * shape_.d_v);
    }
    double bytes() const override {
        return static_cast<double>(shape_.parts + 1) * (Tensors::bytes(out_) + Tensors::bytes(lse_));
    }

private:
    std::int64_t rows() const { return shape_.b * shape_.s_q; }

    // Some parts saw no key, in either spelling, now and then none did.
    std::vector<float> part_lse(std::int64_t part) const {
        std::vector<float> values(static_cast<std::size_t>(rows() * shape_.heads));
        Draw draw(core::random_bits(shape_.seed, 1000 + static_cast<std::uint64_t>(part)));
        for (float& value : values) {
            const std::int64_t kind = draw.between(0, 15);
            value = kind == 0   ? HUGE_VALF
                    : kind == 1 ? -HUGE_VALF
                                : static_cast<float>(draw.between(-4000, 4000)) / 100;
        }
        return values;
    }

    std::vector<TensorView> outs_, lses_;
    TensorView out_, lse_;
};

}  // namespace

std::vector<OperationInfo> merge_operations() {
    return {{"merge",
             "partial results of several ranks or chunks into one",
             {"dtype", "b", "s_q", "h_q", "d_v", "parts"},
             {{.b = 128}, {.b = 128, .parts = 8}, {.b = 1, .s_q = 4096, .heads = 16}},
             random_rows,
             make_case<MergeCase>}};
}

}  // namespace flashmla::cli
