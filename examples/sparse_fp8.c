/* Token-sparse decode from an fp8 cache in C99, as DeepSeek-V3.2 does it: new tokens are appended to pages of 656-byte
 * records, which quantises them, and the query attends to the tokens that an index list picks.
 *
 *   cc -std=c99 sparse_fp8.c $(pkg-config --cflags --libs flashmla) -lm
 */
#include <flashmla/flashmla.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    TOKENS = 200,
    TOPK = 64,
    HEADS = 4,
    LATENT = 512,
    ROPE = 64,
    DIM_QK = LATENT + ROPE,
    PAGE = 64,
    PAGES = 4,
    RECORD = 656
};

static void expect(flashmla_status status) {
    if (status == FLASHMLA_OK) return;
    fprintf(stderr, "flashmla: %s\n", flashmla_last_error());
    exit(1);
}

/* Made-up data between -1 and 1. */
static float random_value(void) {
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1.0f;
}

/* The upper half of a float is a bf16, rounded towards zero. */
static uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static double from_bf16(uint16_t code) {
    const uint32_t bits = (uint32_t)code << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t q[HEADS * DIM_QK], out[HEADS * LATENT];
static float latent[TOKENS * LATENT], rope[TOKENS * ROPE], lse[HEADS];
static uint8_t cache[PAGES * PAGE * RECORD];
static int32_t slots[TOKENS], indices[TOPK];

/* The same in plain C on the values before they were quantised: largest difference of any output. */
static double largest_difference(double scale) {
    double worst = 0;
    int h, i, c;
    for (h = 0; h < HEADS; ++h) {
        double sums[LATENT] = {0}, total = 0;
        for (i = 0; i < TOPK; ++i) {
            const int token = PAGES * PAGE - 1 - indices[i];
            double logit = 0, weight;
            if (indices[i] < 0) continue;
            for (c = 0; c < LATENT; ++c) logit += from_bf16(q[h * DIM_QK + c]) * latent[token * LATENT + c];
            for (c = 0; c < ROPE; ++c) logit += from_bf16(q[h * DIM_QK + LATENT + c]) * rope[token * ROPE + c];
            weight = exp(logit * scale);
            total += weight;
            for (c = 0; c < LATENT; ++c) sums[c] += weight * latent[token * LATENT + c];
        }
        for (c = 0; c < LATENT; ++c) worst = fmax(worst, fabs(sums[c] / total - from_bf16(out[h * LATENT + c])));
    }
    return worst;
}

int main(void) {
    const double scale = 1 / sqrt(192.0);
    double difference;
    int i;
    for (i = 0; i < HEADS * DIM_QK; ++i) q[i] = to_bf16(random_value());
    for (i = 0; i < TOKENS * LATENT; ++i) latent[i] = random_value();
    for (i = 0; i < TOKENS * ROPE; ++i) rope[i] = random_value();
    for (i = 0; i < TOKENS; ++i)
        slots[i] = PAGES * PAGE - 1 - i; /* slots in any order: here from the last page's end */
    for (i = 0; i < TOPK; ++i) indices[i] = slots[(7 * i) % TOKENS]; /* what the model's indexer picked */
    indices[TOPK - 1] = -1;                                          /* fewer than TOPK: the rest is negative */

    const flashmla_tensor latent_view =
        flashmla_contiguous(latent, FLASHMLA_FLOAT32, 2, (const int64_t[]){TOKENS, LATENT});
    const flashmla_tensor rope_view = flashmla_contiguous(rope, FLASHMLA_FLOAT32, 2, (const int64_t[]){TOKENS, ROPE});
    const flashmla_tensor slots_view = flashmla_contiguous(slots, FLASHMLA_INT32, 1, (const int64_t[]){TOKENS});
    const flashmla_tensor cache_view =
        flashmla_contiguous(cache, FLASHMLA_UINT8, 4, (const int64_t[]){PAGES, PAGE, 1, RECORD});
    flashmla_append_args append;
    FLASHMLA_INIT(&append);
    append.latent = &latent_view;
    append.rope = &rope_view;
    append.slot_ids = &slots_view;
    append.cache = &cache_view;
    expect(flashmla_append(&append, NULL));

    const flashmla_tensor q_view = flashmla_contiguous(q, FLASHMLA_BFLOAT16, 4, (const int64_t[]){1, 1, HEADS, DIM_QK});
    const flashmla_tensor indices_view = flashmla_contiguous(indices, FLASHMLA_INT32, 3, (const int64_t[]){1, 1, TOPK});
    const flashmla_tensor out_view =
        flashmla_contiguous(out, FLASHMLA_BFLOAT16, 4, (const int64_t[]){1, 1, HEADS, LATENT});
    const flashmla_tensor lse_view = flashmla_contiguous(lse, FLASHMLA_FLOAT32, 3, (const int64_t[]){1, HEADS, 1});
    flashmla_decode_args args;
    FLASHMLA_INIT(&args);
    args.q = &q_view;
    args.k_cache = &cache_view;
    args.indices = &indices_view;
    args.out = &out_view;
    args.lse = &lse_view;
    args.has_softmax_scale = 1;
    args.softmax_scale = scale;
    expect(flashmla_decode(&args, NULL, NULL));

    difference = largest_difference(scale);
    printf("%d of %d tokens, %d bytes each; head 0: lse %.4f, out[0] %.4f\n", TOPK - 1, TOKENS, RECORD, lse[0],
           from_bf16(out[0]));
    printf("largest difference from the same without quantisation: %.4f\n", difference);
    return difference < 0.05 ? 0 : 1;
}
