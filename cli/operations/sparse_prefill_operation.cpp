// Sparse prefill as verify and bench see it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/batch_options.hpp"
#include "cli/operations/planned_prefill.hpp"
#include "reference/decode.hpp"
#include "reference/element.hpp"
#include "reference/sparse_prefill.hpp"

namespace flashmla::cli {
namespace {

class SparsePrefillCase final : public OperationCase {
public:
    SparsePrefillCase(const CaseShape& shape, const CaseDevice& device) : OperationCase(shape, device) {
        args_.q = tensors_.normal(shape.dtype, {shape.s_q, shape.heads, shape.d_qk}, shape.deviation);
        args_.kv = latents();
        add_lists();
        args_.attn_sink = tensors_.normal(DType::kFloat32, {shape.heads});
        args_.out = tensors_.output(shape.dtype, {shape.s_q, shape.heads, shape.d_v});
        args_.max_logits = tensors_.output(DType::kFloat32, {shape.s_q, shape.heads});
        args_.lse = tensors_.output(DType::kFloat32, {shape.s_q, shape.heads});
        args_.softmax_scale = 1 / std::sqrt(kModelHeadDim);
        args_.has_softmax_scale = true;
        planned_ = plan_case(sparse_prefill_shape(args_), device);
    }

    Status run() override {
        return planned_.run([&](const PrefillPlan& plan, void* workspace, std::size_t bytes) {
            return run_sparse_prefill(plan, args_, workspace, bytes, device_.buffers.stream());
        });
    }

    RowCheck check(std::int64_t count) override {
        SparsePrefillArgs host = args_;
        for (TensorView SparsePrefillArgs::*member :
             {&SparsePrefillArgs::q, &SparsePrefillArgs::kv, &SparsePrefillArgs::indices,
              &SparsePrefillArgs::topk_length, &SparsePrefillArgs::attn_sink, &SparsePrefillArgs::out,
              &SparsePrefillArgs::max_logits, &SparsePrefillArgs::lse}) {
            if ((host.*member).rank > 0) host.*member = tensors_.on_host(args_.*member);
        }
        const DecodeArgs call = reference::as_decode(host);
        const reference::RoundingModel model = rounding_model(planned_.plan);
        const std::vector<std::int64_t> sample = sampled(shape_.s_q * shape_.heads, count, shape_.seed);
        return hold_on_threads(sample, device_.threads, [&](std::int64_t n) {
            const reference::Row row{0, n / shape_.heads, n % shape_.heads};
            const reference::RowResult exact = reference::decode_row(call, row);
            const reference::RowBound bound = reference::error_bound(call, row, exact, model);
            const auto stored = [&](const TensorView& view) { return reference::element(view, {row.token, row.head}); };
            std::vector<CheckedRow> rows =
                attention_rows(exact, bound, row_of(host.out, row.token, row.head), stored(host.lse), describe(row));
            rows.push_back(
                {{exact.max_logit}, {bound.max_logit}, {stored(host.max_logits)}, describe(row) + " max_logits"});
            return rows;
        });
    }

    std::string kernel() const override { return planned_.plan.kernel; }

    double flops() const override {
        return 2 * static_cast<double>(shape_.s_q * shape_.topk) * static_cast<double>(shape_.heads) *
               static_cast<double>(shape_.d_qk + shape_.d_v);
    }
    // The latents once, or as many of them as the lists can name when those are fewer.
    double bytes() const override {
        const std::int64_t read = std::min(shape_.len, shape_.s_q * shape_.topk);
        return static_cast<double>(read * shape_.d_qk) * static_cast<double>(size_bytes(shape_.dtype)) +
               Tensors::bytes(args_.q) + Tensors::bytes(args_.indices) + Tensors::bytes(args_.out) +
               Tensors::bytes(args_.max_logits) + Tensors::bytes(args_.lse);
    }

private:
    // len latents, and behind them a row of NaN that no list may lead to.
    TensorView latents() {
        const TensorView kv = tensors_.normal(shape_.dtype, {shape_.len + 1, 1, shape_.d_qk}, shape_.deviation);
        const auto row_bytes = static_cast<std::int64_t>(size_bytes(shape_.dtype)) * shape_.d_qk;
        const std::vector<std::byte> poison(static_cast<std::size_t>(row_bytes), std::byte{0xff});
        device_.buffers.copy_to(static_cast<std::byte*>(kv.data) + shape_.len * row_bytes, poison.data(),
                                poison.size());
        return kv;
    }

    // Latents at random; one in 16 of the entries names none. With lengths of their own, the entries past them name the
    // row of NaN.
    void add_lists() {
        Draw draw(shape_.seed + 2);
        std::vector<std::int32_t> ids;
        std::vector<std::int32_t> lengths;
        for (std::int64_t token = 0; token < shape_.s_q; ++token) {
            const std::int64_t length = shape_.varlen ? draw.between(0, shape_.topk) : shape_.topk;
            for (std::int64_t i = 0; i < shape_.topk; ++i) {
                const bool masked = shape_.len == 0 || draw.between(0, 15) == 0;
                const std::int32_t id = masked ? draw.one_of({-1, std::numeric_limits<std::int32_t>::max()})
                                               : static_cast<std::int32_t>(draw.between(0, shape_.len - 1));
                ids.push_back(i < length ? id : static_cast<std::int32_t>(shape_.len));
            }
            lengths.push_back(static_cast<std::int32_t>(length));
        }
        args_.indices = tensors_.of(ids, {shape_.s_q, 1, shape_.topk});
        if (shape_.varlen) args_.topk_length = tensors_.of(lengths, {shape_.s_q});
    }

    SparsePrefillArgs args_;
    PlannedPrefill planned_;
};

CaseShape random_case(std::uint64_t seed, std::int64_t max_length, std::int64_t max_rows) {
    Draw draw(seed);
    CaseShape shape{.seed = seed};
    shape.heads = draw.one_of<std::int64_t>({1, 3, 16, 63, 64, 128});
    shape.s_q = draw.between(1, std::max<std::int64_t>(1, 2 * max_rows / shape.heads));
    shape.len = draw.between(0, max_length / 4);
    shape.topk = draw.between(1, std::max<std::int64_t>(1, std::min<std::int64_t>(max_length / 8, 2048)));
    shape.d_qk = draw.one_of<std::int64_t>({576, 512, 320});
    shape.d_v = shape.d_qk == 320 ? 256 : 512;
    shape.dtype = draw.one_of({DType::kBFloat16, DType::kFloat16});
    shape.varlen = draw.between(0, 1) == 1;
    shape.deviation = std::exp2(static_cast<double>(draw.between(-3, 1)));
    return shape;
}

}  // namespace

std::vector<OperationInfo> sparse_prefill_operations() {
    return {{"sparse_prefill",
             "many query tokens over latents, each by its own index list",
             {"dtype", "h_q", "s_q", "len", "topk", "d_qk", "d_v", "varlen"},
             {{.len = 16384, .s_q = 16, .topk = 2048, .deviation = 0.5},
              {.len = 16384, .s_q = 64, .topk = 2048, .deviation = 0.5},
              {.len = 16384, .s_q = 64, .heads = 16, .topk = 2048, .deviation = 0.5},
              {.len = 16384, .s_q = 64, .heads = 16, .topk = 512, .deviation = 0.5}},
             random_case,
             make_case<SparsePrefillCase>,
             true}};
}

}  // namespace flashmla::cli
