#include "support/prefill_case.hpp"

#include <algorithm>
#include <cmath>

#include "reference/element.hpp"
#include "reference/random.hpp"

namespace flashmla::testing_support {
namespace {

std::int64_t total(const PrefillSpec& spec, bool keys) {
    std::int64_t sum = 0;
    for (const auto& [q, kv] : spec.lengths) sum += keys ? kv : q;
    return sum;
}

GuardedTensor cumulative(const PrefillSpec& spec, bool keys) {
    GuardedTensor tensor(DType::kInt32, {static_cast<std::int64_t>(spec.lengths.size()) + 1});
    std::int64_t sum = 0;
    tensor.set(0, 0);
    for (std::size_t i = 0; i < spec.lengths.size(); ++i) {
        sum += keys ? spec.lengths[i].second : spec.lengths[i].first;
        tensor.set(static_cast<std::int64_t>(i) + 1, static_cast<double>(sum));
    }
    return tensor;
}

double effective_scale(const PrefillSpec& spec) {
    return spec.scale != 0 ? spec.scale : 1 / std::sqrt(static_cast<double>(spec.d_qk));
}

}  // namespace

void PrintTo(const PrefillSpec& spec, std::ostream* stream) { *stream << spec.name; }

PrefillCase::PrefillCase(const PrefillSpec& spec) : spec_(spec) {
    const std::int64_t total_q = total(spec, false);
    const std::int64_t total_kv = total(spec, true);
    const std::vector<int> order = spec.head_major ? std::vector{1, 0, 2} : std::vector<int>{};
    const auto make = [&](std::int64_t tokens, std::int64_t heads, std::int64_t width) {
        return GuardedTensor(spec.dtype, {tokens, heads, width}, spec.gap, order);
    };
    q_ = make(total_q, spec.h_q, spec.d_qk);
    k_ = make(total_kv, spec.h_kv, spec.d_qk);
    v_ = make(total_kv, spec.h_kv, spec.d_v);
    out_ = make(total_q, spec.h_q, spec.d_v);
    dout_ = make(total_q, spec.h_q, spec.d_v);
    dq_ = make(total_q, spec.h_q, spec.d_qk);
    dk_ = make(total_kv, spec.h_kv, spec.d_qk);
    dv_ = make(total_kv, spec.h_kv, spec.d_v);
    lse_ = GuardedTensor(DType::kFloat32, {total_q, spec.h_q}, spec.gap,
                         spec.head_major ? std::vector{1, 0} : std::vector<int>{});
    dlse_ = GuardedTensor(DType::kFloat32, {total_q, spec.h_q}, spec.gap);
    cu_q_ = cumulative(spec, false);
    cu_kv_ = cumulative(spec, true);

    reference::Random random(spec.seed);
    // q . k of keys with deviation 1 has deviation q_std * sqrt(d_qk).
    const double spread = spec.logit_std / (effective_scale(spec) * std::sqrt(static_cast<double>(spec.d_qk)));
    for (std::int64_t i = 0; i < q_.elements(); ++i) q_.set(i, (spec.rising ? 0.1 : 1) * spread * random.normal());
    for (std::int64_t i = 0; i < k_.elements(); ++i) k_.set(i, random.normal());
    // Values with means: with zero means every mixture of many values is close to 0 and errors hide.
    for (std::int64_t i = 0; i < v_.elements(); ++i) v_.set(i, random.normal() + (i % 4 == 0 ? 1 : 0));
    for (std::int64_t i = 0; i < dout_.elements(); ++i) dout_.set(i, random.normal());
    for (std::int64_t i = 0; i < dlse_.elements(); ++i) dlse_.set(i, random.normal());
    if (!spec.rising) return;
    // Column 0 carries a ramp over the keys of a request, from -2 to 2 deviations.
    for (std::int64_t i = 0; i < q_.elements(); i += spec.d_qk) q_.set(i, 4);
    std::int64_t row = 0;
    for (const auto& [q_length, kv_length] : spec.lengths) {
        for (std::int32_t j = 0; j < kv_length; ++j) {
            const double place = kv_length > 1 ? 4.0 * j / (kv_length - 1) - 2 : 0;
            for (std::int64_t h = 0; h < spec.h_kv; ++h, ++row) {
                k_.set(row * spec.d_qk, spec.logit_std * place / (4 * effective_scale(spec)));
            }
        }
    }
}

DensePrefillArgs PrefillCase::args() const {
    std::int64_t longest_q = 0;
    std::int64_t longest_kv = 0;
    for (const auto& [q, kv] : spec_.lengths) {
        longest_q = std::max<std::int64_t>(longest_q, q);
        longest_kv = std::max<std::int64_t>(longest_kv, kv);
    }
    return {.q = q_.view(),
            .k = k_.view(),
            .v = v_.view(),
            .cu_seqlens_q = cu_q_.view(),
            .cu_seqlens_kv = cu_kv_.view(),
            .out = out_.view(),
            .lse = lse_.view(),
            .max_seqlen_q = longest_q,
            .max_seqlen_kv = longest_kv,
            .softmax_scale = spec_.scale,
            .has_softmax_scale = spec_.scale != 0,
            .causal = spec_.causal};
}

DensePrefillBackwardArgs PrefillCase::backward_args() const {
    return {.forward = args(),
            .dout = dout_.view(),
            .dlse = dlse_.view(),
            .dq = dq_.view(),
            .dk = dk_.view(),
            .dv = dv_.view()};
}

void PrefillCase::reset_outputs() {
    out_.fill_poison();
    lse_.fill_poison();
}

std::vector<reference::Row> prefill_rows(const DensePrefillArgs& args, std::int64_t step) {
    std::vector<reference::Row> rows;
    std::int64_t number = 0;
    for (std::int64_t i = 0; i + 1 < args.cu_seqlens_q.shape[0]; ++i) {
        const std::int64_t tokens = reference::request_span(args.cu_seqlens_q, i).count;
        for (std::int64_t t = 0; t < tokens; ++t) {
            for (std::int64_t h = 0; h < args.q.shape[1]; ++h) {
                if (number++ % step == 0) rows.push_back({i, t, h});
            }
        }
    }
    return rows;
}

testing::AssertionResult PrefillCase::matches_oracle(const reference::RoundingModel& model, std::int64_t step) const {
    for (const std::string& fault : {out_.output_fault("out"), lse_.output_fault("lse")}) {
        if (!fault.empty()) return testing::AssertionFailure() << spec_.name << ": " << fault;
    }
    const DensePrefillArgs call = args();
    for (const reference::Row& row : prefill_rows(call, step)) {
        const reference::AttentionRow problem = reference::attention_row(call, row);
        const reference::RowResult exact = reference::attend_row(problem);
        const reference::RowBound bound = reference::error_bound(problem, exact, call.out.dtype, model);
        const std::int64_t token = reference::request_span(call.cu_seqlens_q, row.request).begin + row.token;
        const double lse = reference::element(call.lse, {token, row.head});
        const bool lse_right = std::isinf(exact.lse) ? lse == exact.lse : std::abs(lse - exact.lse) <= bound.lse;
        if (!lse_right) {
            return testing::AssertionFailure() << spec_.name << ", " << describe(row) << ": lse " << lse
                                               << " instead of " << exact.lse << ", bound " << bound.lse;
        }
        for (std::size_t d = 0; d < exact.out.size(); ++d) {
            const double got = reference::element(call.out, {token, row.head, static_cast<std::int64_t>(d)});
            if (std::abs(got - exact.out[d]) <= bound.out[d] && std::isfinite(bound.out[d])) continue;
            return testing::AssertionFailure() << spec_.name << ", " << describe(row) << ": out[" << d << "] " << got
                                               << " instead of " << exact.out[d] << ", bound " << bound.out[d];
        }
    }
    return testing::AssertionSuccess();
}

std::vector<PrefillSpec> prefill_families() {
    return {
        {},
        {.name = "one token", .lengths = {{1, 1}}},
        {.name = "square dims", .lengths = {{65, 65}}, .d_qk = 128},
        {.name = "fp16", .lengths = {{70, 70}}, .dtype = DType::kFloat16},
        {.name = "not causal", .lengths = {{33, 90}, {70, 64}}, .causal = false},
        {.name = "varlen with empty requests",
         .lengths = {{5, 9}, {0, 0}, {130, 130}, {0, 7}, {3, 0}, {64, 64}, {1, 200}},
         .h_q = 3,
         .h_kv = 3},
        {.name = "chunked prefill: more keys than queries", .lengths = {{17, 300}, {100, 257}}, .h_q = 2, .h_kv = 1},
        {.name = "more queries than keys", .lengths = {{90, 20}, {300, 129}}},
        {.name = "grouped heads", .lengths = {{40, 75}}, .h_q = 12, .h_kv = 3},
        {.name = "one kv head", .lengths = {{9, 70}, {4, 4}}, .h_q = 20, .h_kv = 1},
        {.name = "more heads a kv head than a tile", .lengths = {{3, 40}}, .h_q = 150, .h_kv = 1},
        {.name = "heads outside tokens", .lengths = {{70, 90}}, .h_q = 4, .h_kv = 2, .head_major = true},
        {.name = "packed", .lengths = {{70, 90}}, .gap = 0},
        {.name = "flat logits", .lengths = {{80, 180}}, .logit_std = 0.01},
        {.name = "logit deviation 8", .lengths = {{80, 180}}, .logit_std = 8},
        {.name = "logit deviation 50", .lengths = {{80, 180}}, .logit_std = 50},
        {.name = "rising logits", .lengths = {{80, 400}}, .logit_std = 8, .rising = true},
        {.name = "rising logits, deviation 50",
         .lengths = {{80, 400}},
         .dtype = DType::kFloat16,
         .logit_std = 50,
         .rising = true},
        {.name = "negative scale", .lengths = {{40, 70}}, .scale = -0.05},
        {.name = "no requests", .lengths = {}},
    };
}

}  // namespace flashmla::testing_support
