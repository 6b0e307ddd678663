// The two projections around absorbed attention (absorb.hpp).
#ifndef FLASHMLA_C_ABSORB_H
#define FLASHMLA_C_ABSORB_H

#include "flashmla/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct flashmla_absorb_args {
    uint32_t struct_size;
    uint32_t reserved;
    const flashmla_tensor* x;       // flashmla_absorb_query: (n, h, head_dim); project_output: (n, h, kv_lora_rank)
    const flashmla_tensor* weight;  // W_UK or W_UV: (h, head_dim, kv_lora_rank), x's dtype
    const flashmla_tensor* out;     // written: (n, h, kv_lora_rank) or (n, h, head_dim)
} flashmla_absorb_args;

// Queries into latent space: out[n, h, :] = x[n, h, :] W_UK[h].
FLASHMLA_API flashmla_status flashmla_absorb_query(const flashmla_absorb_args* args, flashmla_stream stream);

// Latent outputs back to heads: out[n, h, :] = W_UV[h] x[n, h, :].
FLASHMLA_API flashmla_status flashmla_project_output(const flashmla_absorb_args* args, flashmla_stream stream);

#ifdef __cplusplus
}
#endif

#endif
