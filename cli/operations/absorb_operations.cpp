// The projections around absorbed attention as verify and bench see them.
#include <algorithm>
#include <cmath>

#include "cli/operations/operation_case.hpp"
#include "reference/absorb.hpp"

namespace flashmla::cli {
namespace {

using reference::Projection;

template <Projection kProjection>
class AbsorbCase final : public OperationCase {
public:
    AbsorbCase(const CaseShape& shape, const CaseDevice& device) : OperationCase(shape, device) {
        const bool absorb = kProjection == Projection::kAbsorbQuery;
        const std::int64_t rows = shape.b * shape.s_q;
        args_.x =
            tensors_.normal(shape.dtype, {rows, shape.heads, absorb ? shape.head_dim : shape.rank}, shape.deviation);
        args_.weight = tensors_.normal(shape.dtype, {shape.heads, shape.head_dim, shape.rank}, shape.deviation);
        args_.out = tensors_.output(shape.dtype, {rows, shape.heads, absorb ? shape.rank : shape.head_dim});
    }

    Status run() override {
        return kProjection == Projection::kAbsorbQuery ? absorb_query(args_, device_.buffers.stream())
                                                       : project_output(args_, device_.buffers.stream());
    }

    RowCheck check(std::int64_t count) override {
        const AbsorbArgs host{.x = tensors_.on_host(args_.x),
                              .weight = tensors_.on_host(args_.weight),
                              .out = tensors_.on_host(args_.out)};
        const std::vector<std::int64_t> sample = sampled(host.x.shape[0] * shape_.heads, count, shape_.seed);
        return hold_on_threads(sample, device_.threads, [&](std::int64_t n) -> std::vector<CheckedRow> {
            const std::int64_t row = n / shape_.heads;
            const std::int64_t head = n % shape_.heads;
            const reference::ProjectedRow exact = reference::project_row(host, kProjection, row, head);
            return {{exact.out, exact.bound, row_of(host.out, row, head),
                     "row " + std::to_string(row) + " head " + std::to_string(head)}};
        });
    }

    double flops() const override {
        return 2 * static_cast<double>(shape_.b * shape_.s_q * shape_.heads) *
               static_cast<double>(shape_.head_dim * shape_.rank);
    }
    double bytes() const override {
        return Tensors::bytes(args_.x) + Tensors::bytes(args_.weight) + Tensors::bytes(args_.out);
    }

private:
    AbsorbArgs args_;
};

CaseShape random_case(std::uint64_t seed, std::int64_t /*max_length*/, std::int64_t max_rows) {
    Draw draw(seed);
    CaseShape shape{.seed = seed};
    shape.heads = draw.one_of<std::int64_t>({1, 2, 3, 16});
    shape.s_q = draw.between(1, 3);
    shape.b = draw.between(0, std::max<std::int64_t>(1, max_rows / (shape.heads * shape.s_q)));
    shape.head_dim = draw.one_of<std::int64_t>({128, 128, 192, 64, 33, 1});
    shape.rank = draw.one_of<std::int64_t>({512, 512, 256, 448, 65, 1});
    shape.dtype = draw.one_of({DType::kBFloat16, DType::kFloat16, DType::kFloat32});
    shape.deviation = std::exp2(static_cast<double>(draw.between(-6, 3)));
    return shape;
}

}  // namespace

std::vector<OperationInfo> absorb_operations() {
    const std::vector<const char*> keys{"dtype", "b", "h_q", "s_q", "head_dim", "kv_lora_rank"};
    const std::vector<CaseShape> sizes{{}, {.b = 128}, {.s_q = 512}, {.s_q = 2048, .heads = 16}};
    return {{"absorb_query", "queries into latent space: q_nope W_UK", keys, sizes, random_case,
             make_case<AbsorbCase<Projection::kAbsorbQuery>>},
            {"project_output", "latent outputs back to heads: latent W_UV", keys, sizes, random_case,
             make_case<AbsorbCase<Projection::kProjectOutput>>}};
}

}  // namespace flashmla::cli
