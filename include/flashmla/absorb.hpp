// The two projections around absorbed MLA attention: queries into latent space, latent outputs back to heads.
#pragma once

#include "flashmla/status.hpp"
#include "flashmla/tensor_view.hpp"

namespace flashmla {

struct AbsorbArgs {
    TensorView x{};       // absorb_query: (n, h, head_dim); project_output: (n, h, kv_lora_rank). bf16, fp16 or fp32
    TensorView weight{};  // W_UK or W_UV, both (h, head_dim, kv_lora_rank); x's dtype
    TensorView out{};     // absorb_query: (n, h, kv_lora_rank); project_output: (n, h, head_dim); x's dtype, fp32 sums
};

// out[n, h, :] = x[n, h, :] W_UK[h]: the query that scores latents directly. `out` may be the first columns of a query
// tensor (n, h, d_qk): strides are free but for the last axis.
Status absorb_query(const AbsorbArgs& args, StreamHandle stream = nullptr);

// out[n, h, :] = W_UV[h] x[n, h, :]: a latent attention output becomes a value of the head.
Status project_output(const AbsorbArgs& args, StreamHandle stream = nullptr);

}  // namespace flashmla
