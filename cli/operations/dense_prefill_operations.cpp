// Dense prefill and its backward pass as verify and bench see them.
#include <algorithm>
#include <cmath>

#include "cli/exit_codes.hpp"
#include "cli/operations/planned_prefill.hpp"
#include "reference/element.hpp"
#include "reference/prefill.hpp"
#include "reference/prefill_backward.hpp"

namespace flashmla::cli {
namespace {

using reference::Row;

// A part of a tensor over (token, head).
struct Part {
    std::int64_t token = 0, tokens = 1, head = 0, heads = 1;

    TensorView of(TensorView view) const {
        const std::int64_t first = token * view.stride[0] + head * view.stride[1];
        view.data = static_cast<std::byte*>(view.data) + first * static_cast<std::int64_t>(size_bytes(view.dtype));
        view.shape[0] = tokens;
        view.shape[1] = heads;
        return view;
    }
};

// The forward pass. Requests have s_q query tokens and len keys each, or, ragged, up to as many.
class ForwardCase : public OperationCase {
public:
    ForwardCase(const CaseShape& shape, const CaseDevice& device)
        : OperationCase(shape, device), cu_q_(cumulative(shape.s_q, 3)), cu_kv_(cumulative(shape.len, 4)) {
        const std::int64_t total_q = cu_q_.back();
        const std::int64_t total_kv = cu_kv_.back();
        args_ = {.q = tensors_.normal(shape.dtype, {total_q, shape.heads, shape.d_qk}, shape.deviation),
                 .k = tensors_.normal(shape.dtype, {total_kv, shape.kv_heads, shape.d_qk}, shape.deviation),
                 .v = tensors_.normal(shape.dtype, {total_kv, shape.kv_heads, shape.d_v}, shape.deviation),
                 .cu_seqlens_q = tensors_.of(cu_q_, {shape.b + 1}),
                 .cu_seqlens_kv = tensors_.of(cu_kv_, {shape.b + 1}),
                 .out = tensors_.output(shape.dtype, {total_q, shape.heads, shape.d_v}),
                 .lse = tensors_.output(DType::kFloat32, {total_q, shape.heads}),
                 .max_seqlen_q = shape.s_q,
                 .max_seqlen_kv = shape.len,
                 .causal = shape.causal};
        planned_ = plan_case(dense_prefill_shape(args_), device);
    }

    Status run() override {
        return planned_.run([&](const PrefillPlan& plan, void* workspace, std::size_t bytes) {
            return run_dense_prefill(plan, args_, workspace, bytes, device_.buffers.stream());
        });
    }

    RowCheck check(std::int64_t count) override {
        const DensePrefillArgs host = on_host();
        const reference::RoundingModel model = rounding_model(planned_.plan);
        const std::vector<std::int64_t> sample = sampled(cu_q_.back() * shape_.heads, count, shape_.seed);
        return hold_on_threads(sample, device_.threads, [&](std::int64_t n) {
            const std::int64_t token = n / shape_.heads;
            const Row row = place(cu_q_, token, n % shape_.heads);
            const reference::AttentionRow problem = reference::attention_row(host, row);
            const reference::RowResult exact = reference::attend_row(problem);
            return attention_rows(exact, reference::error_bound(problem, exact, shape_.dtype, model),
                                  row_of(host.out, token, row.head), reference::element(host.lse, {token, row.head}),
                                  describe(row));
        });
    }

    std::string kernel() const override { return planned_.plan.kernel; }
    double flops() const override { return 2 * pairs() * static_cast<double>(shape_.d_qk + shape_.d_v); }
    double bytes() const override {
        return Tensors::bytes(args_.q) + Tensors::bytes(args_.k) + Tensors::bytes(args_.v) + Tensors::bytes(args_.out) +
               Tensors::bytes(args_.lse);
    }

protected:
    DensePrefillArgs on_host() {
        DensePrefillArgs host = args_;
        for (TensorView DensePrefillArgs::*member :
             {&DensePrefillArgs::q, &DensePrefillArgs::k, &DensePrefillArgs::v, &DensePrefillArgs::cu_seqlens_q,
              &DensePrefillArgs::cu_seqlens_kv, &DensePrefillArgs::out, &DensePrefillArgs::lse}) {
            host.*member = tensors_.on_host(args_.*member);
        }
        return host;
    }

    // (query, key) pairs of all heads that see each other.
    double pairs() const {
        DensePrefillArgs lengths = args_;
        lengths.cu_seqlens_q = contiguous_view(cu_q_.data(), DType::kInt32, {shape_.b + 1});
        lengths.cu_seqlens_kv = contiguous_view(cu_kv_.data(), DType::kInt32, {shape_.b + 1});
        double sum = 0;
        for (std::int64_t token = 0; token < cu_q_.back(); ++token) {
            sum += static_cast<double>(reference::visible_keys(lengths, place(cu_q_, token, 0)));
        }
        return sum * static_cast<double>(shape_.heads);
    }

    // Request and place within it of a token.
    static Row place(const std::vector<std::int32_t>& cu, std::int64_t token, std::int64_t head) {
        const auto request = std::upper_bound(cu.begin(), cu.end(), token) - cu.begin() - 1;
        return {request, token - cu[request], head};
    }

    std::vector<std::int32_t> cu_q_, cu_kv_;
    DensePrefillArgs args_;
    PlannedPrefill planned_;

private:
    std::vector<std::int32_t> cumulative(std::int64_t longest, std::uint64_t stream) const {
        Draw draw(shape_.seed + stream);
        std::vector<std::int32_t> cu{0};
        for (std::int64_t i = 0; i < shape_.b; ++i) {
            const std::int64_t length = shape_.varlen ? draw.between(0, longest) : longest;
            cu.push_back(cu.back() + static_cast<std::int32_t>(length));
        }
        return cu;
    }
};

class BackwardCase final : public ForwardCase {
public:
    BackwardCase(const CaseShape& shape, const CaseDevice& device) : ForwardCase(shape, device) {
        const auto like = [&](const TensorView& view) {
            return tensors_.output(shape.dtype, {view.shape[0], view.shape[1], view.shape[2]});
        };
        backward_ = {.forward = args_,
                     .dout = tensors_.normal(shape.dtype, {cu_q_.back(), shape.heads, shape.d_v}),
                     .dlse = tensors_.normal(DType::kFloat32, {cu_q_.back(), shape.heads}),
                     .dq = like(args_.q),
                     .dk = like(args_.k),
                     .dv = like(args_.v)};
        if (planned_.status.ok()) planned_.status = ForwardCase::run();
        device.buffers.finish();
        if (!planned_.status.ok()) return;
        PrefillShape of_backward = planned_.plan.shape;
        of_backward.operation = Operation::kDensePrefillBackward;
        planned_ = plan_case(of_backward, device);
    }

    Status run() override {
        return planned_.run([&](const PrefillPlan& plan, void* workspace, std::size_t bytes) {
            return run_dense_prefill_backward(plan, backward_, workspace, bytes, device_.buffers.stream());
        });
    }

    // A row is one of dq, or one of dk with that of dv.
    RowCheck check(std::int64_t count) override {
        DensePrefillBackwardArgs host = backward_;
        host.forward = on_host();
        for (TensorView DensePrefillBackwardArgs::*member :
             {&DensePrefillBackwardArgs::dout, &DensePrefillBackwardArgs::dlse, &DensePrefillBackwardArgs::dq,
              &DensePrefillBackwardArgs::dk, &DensePrefillBackwardArgs::dv}) {
            host.*member = tensors_.on_host(backward_.*member);
        }
        const std::int64_t queries = cu_q_.back() * shape_.heads;
        const std::int64_t keys = cu_kv_.back() * shape_.kv_heads;
        const std::vector<std::int64_t> sample = sampled(queries + keys, count, shape_.seed);
        return hold_on_threads(sample, device_.threads, [&](std::int64_t n) {
            return n < queries ? query_gradient(host, n / shape_.heads, n % shape_.heads)
                               : key_gradients(host, (n - queries) / shape_.kv_heads, (n - queries) % shape_.kv_heads);
        });
    }

    double flops() const override { return 2 * pairs() * static_cast<double>(3 * shape_.d_qk + 2 * shape_.d_v); }
    double bytes() const override {
        return ForwardCase::bytes() + Tensors::bytes(backward_.dout) + Tensors::bytes(backward_.dlse) +
               Tensors::bytes(backward_.dq) + Tensors::bytes(backward_.dk) + Tensors::bytes(backward_.dv);
    }

private:
    // The gradients of a call that has only these queries and these keys, all of which see each other: what they add to
    // the gradients of the whole call, since the softmax weights come from the whole call's LSE.
    static reference::Gradients between(const DensePrefillBackwardArgs& call, const Part& queries, const Part& keys) {
        const std::int32_t cu_q[] = {0, static_cast<std::int32_t>(queries.tokens)};
        const std::int32_t cu_kv[] = {0, static_cast<std::int32_t>(keys.tokens)};
        DensePrefillBackwardArgs part = call;
        DensePrefillArgs& forward = part.forward;
        for (TensorView* view : {&forward.q, &forward.out, &forward.lse, &part.dout, &part.dlse, &part.dq}) {
            *view = queries.of(*view);
        }
        for (TensorView* view : {&forward.k, &forward.v, &part.dk, &part.dv}) *view = keys.of(*view);
        forward.cu_seqlens_q = contiguous_view(cu_q, DType::kInt32, {2});
        forward.cu_seqlens_kv = contiguous_view(cu_kv, DType::kInt32, {2});
        forward.causal = false;
        return reference::prefill_backward(part, reference::Forward::kAsStored);
    }

    std::vector<CheckedRow> query_gradient(const DensePrefillBackwardArgs& call, std::int64_t token,
                                           std::int64_t head) const {
        const Row row = place(cu_q_, token, head);
        const reference::Gradients exact = between(call, {.token = token, .head = head},
                                                   {.token = cu_kv_[row.request],
                                                    .tokens = reference::visible_keys(call.forward, row),
                                                    .head = head / (shape_.heads / shape_.kv_heads)});
        return {{exact.dq.value, exact.dq.bound, row_of(call.dq, token, head), "dq of " + describe(row)}};
    }

    std::vector<CheckedRow> key_gradients(const DensePrefillBackwardArgs& call, std::int64_t token,
                                          std::int64_t head) const {
        const Row key = place(cu_kv_, token, head);
        const std::int64_t tokens = cu_q_[key.request + 1] - cu_q_[key.request];
        std::int64_t first = 0;  // of the query tokens that see the key
        while (first < tokens && reference::visible_keys(call.forward, {key.request, first, 0}) <= key.token) ++first;
        const std::int64_t group = shape_.heads / shape_.kv_heads;
        const reference::Gradients exact = between(
            call, {.token = cu_q_[key.request] + first, .tokens = tokens - first, .head = head * group, .heads = group},
            {.token = token, .head = head});
        const std::string where = " of request " + std::to_string(key.request) + ", key " + std::to_string(key.token) +
                                  ", KV head " + std::to_string(head);
        return {{exact.dk.value, exact.dk.bound, row_of(call.dk, token, head), "dk" + where},
                {exact.dv.value, exact.dv.bound, row_of(call.dv, token, head), "dv" + where}};
    }

    DensePrefillBackwardArgs backward_;
};

// The oracle takes time for every pair: fewer keys, and more rows so that tiles are filled.
CaseShape random_case(std::uint64_t seed, std::int64_t max_length, std::int64_t max_rows) {
    Draw draw(seed);
    CaseShape shape{.seed = seed};
    shape.kv_heads = draw.one_of<std::int64_t>({1, 1, 2, 3});
    shape.heads = shape.kv_heads * draw.one_of<std::int64_t>({1, 2, 5, 16});
    shape.b = draw.between(1, 3);
    shape.s_q = draw.between(1, std::max<std::int64_t>(1, 4 * max_rows / (shape.heads * shape.b)));
    shape.len = draw.between(0, 1) == 0 ? shape.s_q : draw.between(0, max_length / 16);
    shape.d_qk = draw.one_of<std::int64_t>({192, 128});
    shape.d_v = 128;
    shape.dtype = draw.one_of({DType::kBFloat16, DType::kFloat16});
    shape.causal = draw.between(0, 1) == 1;
    shape.varlen = draw.between(0, 2) > 0;
    shape.deviation = std::exp2(static_cast<double>(draw.between(-3, 2)));
    return shape;
}

CaseShape standard(std::int64_t s_q, std::int64_t heads) {
    return {.len = s_q,
            .s_q = s_q,
            .heads = heads,
            .kv_heads = heads,
            .d_qk = 192,
            .d_v = 128,
            .causal = true,
            .deviation = 1};
}

std::vector<CaseShape> standard_sizes(std::int64_t s_q, std::int64_t heads) {
    CaseShape full = standard(s_q, heads);
    full.causal = false;
    CaseShape square = standard(s_q, heads);
    square.d_qk = 128;
    CaseShape grouped = standard(s_q, heads);
    grouped.kv_heads = heads / 4;
    CaseShape ragged = standard(s_q, heads);
    ragged.b = 4;
    ragged.varlen = true;
    return {standard(s_q, heads), full, square, grouped, standard(s_q / 4, heads), ragged};
}

}  // namespace

std::vector<OperationInfo> dense_prefill_operations() {
    const std::vector<const char*> keys{"dtype", "b", "h_q", "h_kv", "s_q", "len", "d_qk", "d_v", "causal", "varlen"};
    return {{"dense_prefill", "plain multi-head attention over a ragged batch", keys, standard_sizes(1024, 16),
             random_case, make_case<ForwardCase>, true},
            {"dense_prefill_backward", "gradients of dense prefill by queries, keys and values", keys,
             standard_sizes(512, 8), random_case, make_case<BackwardCase>, true}};
}

}  // namespace flashmla::cli
