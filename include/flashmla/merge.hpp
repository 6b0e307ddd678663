// Merging partial attention results over disjoint sets of keys: context-parallel ranks, chunked prefill, cascades.
#pragma once

#include <span>

#include "flashmla/status.hpp"
#include "flashmla/tensor_view.hpp"

namespace flashmla {

struct MergeArgs {
    std::span<const TensorView> outs{};  // 1 or more, each (b, s_q, h_q, d_v) or (s_q, h_q, d_v); bf16, fp16 or fp32
    std::span<const TensorView>
        lses{};        // as many, fp32: (b, h_q, s_q) beside rank-4 outs, (s_q, h_q) beside rank-3 outs
    TensorView out{};  // shape of outs[0]; any of the three dtypes
    TensorView lse{};  // shape of lses[0]
};

// out = sum_i w_i out_i with w_i = exp(lse_i - lse), lse = log sum_i exp(lse_i). A part whose LSE is -inf or +inf has
// weight 0 and its out is not read; a row without any part of weight gives zeros and +inf. A NaN LSE makes its row NaN.
Status merge(const MergeArgs& args, StreamHandle stream = nullptr);

}  // namespace flashmla
