#include "reference/prefill_backward.hpp"

#include <algorithm>
#include <cmath>

#include "reference/element.hpp"
#include "reference/prefill.hpp"

namespace flashmla::reference {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kExp2Error = 0x1p-22;  // relative, of 2^x

double sum_error(double additions) { return std::expm1(additions * kUnit / (1 - kUnit)); }

// A sum in double, and what bounds the error of the same sum in fp32.
struct Sum {
    double value = 0;
    double magnitude = 0;  // of the terms
    void add(double a, double b) {
        value += a * b;
        magnitude += std::abs(a * b);
    }
};

std::size_t flat(const TensorView& view, std::int64_t token, std::int64_t head) {
    return static_cast<std::size_t>((token * view.shape[1] + head) * view.shape[2]);
}

// One query row's share of all three gradients.
class RowBackward {
public:
    RowBackward(const DensePrefillBackwardArgs& args, const Row& row, Forward forward, Gradients& result)
        : args_(args),
          call_(args.forward),
          result_(result),
          problem_(attention_row(call_, row)),
          exact_(attend_row(problem_)),
          token_(request_span(call_.cu_seqlens_q, row.request).begin + row.token),
          head_(row.head),
          first_key_(request_span(call_.cu_seqlens_kv, row.request).begin),
          kv_head_(row.head / (call_.q.shape[1] / call_.k.shape[1])),
          dout_(problem_.d_v) {
        lse_ = forward == Forward::kExact ? exact_.lse : element(call_.lse, {token_, head_});
        for (std::size_t d = 0; d < problem_.d_v; ++d) {
            const auto column = static_cast<std::int64_t>(d);
            dout_[d] = element(args.dout, {token_, head_, column});
            delta_.add(dout_[d],
                       forward == Forward::kExact ? exact_.out[d] : element(call_.out, {token_, head_, column}));
        }
        if (args.dlse.rank != 0) delta_.add(-1, element(args.dlse, {token_, head_}));
    }

    // `keys`, `queries`: terms of the running sums of dq, and of dk and dv.
    void run(double keys, double queries) {
        std::vector<double> key(problem_.query.size());
        std::vector<double> value(problem_.d_v);
        for (std::int64_t j = 0; j < problem_.keys; ++j) {
            problem_.read_key(j, key);
            problem_.read_value(j, value);
            add_key(j, key, value, keys, queries);
        }
    }

private:
    void add_key(std::int64_t j, const std::vector<double>& key, const std::vector<double>& value, double keys,
                 double queries) {
        const Score& score = exact_.scores[static_cast<std::size_t>(j)];
        const auto d_qk = static_cast<double>(key.size());
        const auto d_v = static_cast<double>(value.size());
        const double x = score.logit - lse_;
        const double p = std::exp(x);
        const double flushed = std::min(p, 0x1p-126);  // weights below the smallest normal fp32 become 0
        const double e = std::expm1(sum_error(d_qk + 1) * score.magnitude + 2 * kUnit * std::abs(score.logit) +
                                    4 * kUnit * std::abs(x) + kExp2Error);
        Sum products;
        for (std::size_t d = 0; d < value.size(); ++d) products.add(dout_[d], value[d]);
        const double difference = products.value - delta_.value;
        const double difference_error = sum_error(d_v + 1) * products.magnitude +
                                        sum_error(d_v + 3) * delta_.magnitude + kUnit * std::abs(difference);
        const double ds = p * difference;
        const double ds_error = p * ((1 + e) * difference_error + e * std::abs(difference)) +
                                flushed * (std::abs(difference) + difference_error) +
                                2 * kUnit * p * (1 + e) * (std::abs(difference) + difference_error);
        const double scale = problem_.scale;
        const auto add = [](Gradient& to, std::size_t at, double weight, double weight_error, double other,
                            double sum) {
            to.value[at] += weight * other;
            to.bound[at] += (weight_error + sum * (std::abs(weight) + weight_error)) * std::abs(other);
        };
        const std::size_t q_at = flat(call_.q, token_, head_);
        const std::size_t k_at = flat(call_.k, first_key_ + j, kv_head_);
        const std::size_t v_at = flat(call_.v, first_key_ + j, kv_head_);
        const double scaled_error = std::abs(scale) * ds_error;
        for (std::size_t d = 0; d < key.size(); ++d) {
            add(result_.dq, q_at + d, scale * ds, scaled_error, key[d], sum_error(keys + 4));
            add(result_.dk, k_at + d, scale * ds, scaled_error, problem_.query[d], sum_error(queries + 4));
        }
        for (std::size_t d = 0; d < value.size(); ++d) {
            add(result_.dv, v_at + d, p, p * e + flushed, dout_[d], sum_error(queries + 4));
        }
    }

    const DensePrefillBackwardArgs& args_;
    const DensePrefillArgs& call_;
    Gradients& result_;
    AttentionRow problem_;
    RowResult exact_;
    std::int64_t token_, head_, first_key_, kv_head_;
    std::vector<double> dout_;
    double lse_ = 0;
    Sum delta_;
};

// Rounding to the stored type.
void finish(Gradient& gradient, DType dtype) {
    for (std::size_t i = 0; i < gradient.value.size(); ++i) {
        const double computed = gradient.bound[i];
        gradient.bound[i] = computed + core::unit_roundoff(dtype) * (std::abs(gradient.value[i]) + computed) +
                            core::underflow_error(dtype);
    }
}

}  // namespace

Gradient::Gradient(const TensorView& like)
    : value(static_cast<std::size_t>(like.shape[0] * like.shape[1] * like.shape[2])), bound(value.size()) {}

Gradients prefill_backward(const DensePrefillBackwardArgs& args, Forward forward) {
    const DensePrefillArgs& call = args.forward;
    Gradients result{.dq = Gradient(args.dq), .dk = Gradient(args.dk), .dv = Gradient(args.dv)};
    const std::int64_t group = call.q.shape[1] / call.k.shape[1];
    for (std::int64_t i = 0; i + 1 < call.cu_seqlens_q.shape[0]; ++i) {
        const std::int64_t tokens = request_span(call.cu_seqlens_q, i).count;
        const auto keys = static_cast<double>(request_span(call.cu_seqlens_kv, i).count);
        for (std::int64_t t = 0; t < tokens; ++t) {
            for (std::int64_t h = 0; h < call.q.shape[1]; ++h) {
                RowBackward(args, {i, t, h}, forward, result).run(keys, static_cast<double>(tokens * group));
            }
        }
    }
    finish(result.dq, args.dq.dtype);
    finish(result.dk, args.dk.dtype);
    finish(result.dv, args.dv.dtype);
    return result;
}

}  // namespace flashmla::reference
