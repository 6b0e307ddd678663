/* A C program of somebody else: only what an installed flashmla offers. Decodes one token against one key, whose value
 * is the answer. */
#include <flashmla/flashmla.h>

#include <stdio.h>

enum { ONE = 0x3F80 }; /* 1.0 in bf16 */

int main(void) {
    static uint16_t q[576], page[64 * 576], out[512];
    const int32_t table = 0, length = 1;
    float lse = 0;
    size_t i;
    for (i = 0; i < 576; ++i) q[i] = ONE;
    for (i = 0; i < 64 * 576; ++i) page[i] = ONE;

    const flashmla_tensor q_view = flashmla_contiguous(q, FLASHMLA_BFLOAT16, 4, (const int64_t[]){1, 1, 1, 576});
    const flashmla_tensor page_view = flashmla_contiguous(page, FLASHMLA_BFLOAT16, 4, (const int64_t[]){1, 64, 1, 576});
    const flashmla_tensor table_view = flashmla_contiguous(&table, FLASHMLA_INT32, 2, (const int64_t[]){1, 1});
    const flashmla_tensor length_view = flashmla_contiguous(&length, FLASHMLA_INT32, 1, (const int64_t[]){1});
    const flashmla_tensor out_view = flashmla_contiguous(out, FLASHMLA_BFLOAT16, 4, (const int64_t[]){1, 1, 1, 512});
    const flashmla_tensor lse_view = flashmla_contiguous(&lse, FLASHMLA_FLOAT32, 3, (const int64_t[]){1, 1, 1});
    flashmla_decode_args args;
    FLASHMLA_INIT(&args);
    args.q = &q_view;
    args.k_cache = &page_view;
    args.block_table = &table_view;
    args.cache_seqlens = &length_view;
    args.out = &out_view;
    args.lse = &lse_view;
    if (flashmla_decode(&args, NULL, NULL) != FLASHMLA_OK) {
        fprintf(stderr, "%s\n", flashmla_last_error());
        return 1;
    }
    printf("flashmla %s out %04x lse %.3f\n", flashmla_version(), (unsigned)out[511], (double)lse);
    return out[511] == ONE ? 0 : 1;
}
