// Merging partial attention results over disjoint sets of keys (merge.hpp).
#ifndef FLASHMLA_C_MERGE_H
#define FLASHMLA_C_MERGE_H

#include "flashmla/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct flashmla_merge_args {
    uint32_t struct_size;
    int32_t count;                       // of the parts, at least 1
    const flashmla_tensor* const* outs;  // count of them: (b, s_q, h_q, d_v) or (s_q, h_q, d_v)
    const flashmla_tensor* const* lses;  // count of them: (b, h_q, s_q) or (s_q, h_q) fp32
    const flashmla_tensor* out;          // written: shape of outs[0]
    const flashmla_tensor* lse;          // written: shape of lses[0]
} flashmla_merge_args;

FLASHMLA_API flashmla_status flashmla_merge(const flashmla_merge_args* args, flashmla_stream stream);

#ifdef __cplusplus
}
#endif

#endif
