/* One decode step in C99: three requests of different lengths over a paged bf16 cache, on the CPU. Plan once for the
 * shapes, keep the workspace, run every step.
 *
 *   cc -std=c99 decode.c $(pkg-config --cflags --libs flashmla) -lm
 */
#include <flashmla/flashmla.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 3, HEADS = 16, DIM_QK = 576, DIM_V = 512, PAGE = 64, MAX_PAGES = 16 };

static void expect(flashmla_status status) {
    if (status == FLASHMLA_OK) return;
    fprintf(stderr, "flashmla: %s\n", flashmla_last_error());
    exit(1);
}

static void* allocate(size_t bytes) {
    void* memory = malloc(bytes + 1);
    if (memory == NULL) exit(1);
    return memory;
}

/* Made-up data between -1 and 1; the upper half of a float is a bf16. */
static void fill_bf16(uint16_t* values, size_t count) {
    static uint32_t state = 1;
    size_t i;
    for (i = 0; i < count; ++i) {
        float value;
        uint32_t bits;
        state = state * 1664525u + 1013904223u;
        value = (float)(state >> 8) / 8388608.0f - 1.0f;
        memcpy(&bits, &value, sizeof bits);
        values[i] = (uint16_t)(bits >> 16);
    }
}

static float bf16_to_float(uint16_t code) {
    const uint32_t bits = (uint32_t)code << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

int main(void) {
    const int32_t lengths[BATCH] = {450, 1000, 64};
    const size_t q_count = (size_t)BATCH * HEADS * DIM_QK;
    const size_t cache_count = (size_t)BATCH * MAX_PAGES * PAGE * DIM_QK;
    uint16_t* q = allocate(q_count * sizeof *q);
    uint16_t* cache = allocate(cache_count * sizeof *cache);
    uint16_t* out = allocate((size_t)BATCH * HEADS * DIM_V * sizeof *out);
    float lse[BATCH * HEADS];
    int32_t block_table[BATCH * MAX_PAGES]; /* page ids; here request i owns 16 pages in a row */
    int i;

    fill_bf16(q, q_count);
    fill_bf16(cache, cache_count);
    for (i = 0; i < BATCH * MAX_PAGES; ++i) block_table[i] = i;

    const flashmla_tensor q_view =
        flashmla_contiguous(q, FLASHMLA_BFLOAT16, 4, (const int64_t[]){BATCH, 1, HEADS, DIM_QK});
    const flashmla_tensor cache_view =
        flashmla_contiguous(cache, FLASHMLA_BFLOAT16, 4, (const int64_t[]){BATCH * MAX_PAGES, PAGE, 1, DIM_QK});
    const flashmla_tensor table_view =
        flashmla_contiguous(block_table, FLASHMLA_INT32, 2, (const int64_t[]){BATCH, MAX_PAGES});
    const flashmla_tensor lengths_view = flashmla_contiguous(lengths, FLASHMLA_INT32, 1, (const int64_t[]){BATCH});
    const flashmla_tensor out_view =
        flashmla_contiguous(out, FLASHMLA_BFLOAT16, 4, (const int64_t[]){BATCH, 1, HEADS, DIM_V});
    const flashmla_tensor lse_view = flashmla_contiguous(lse, FLASHMLA_FLOAT32, 3, (const int64_t[]){BATCH, HEADS, 1});

    flashmla_decode_args args;
    FLASHMLA_INIT(&args);
    args.q = &q_view;
    args.k_cache = &cache_view;
    args.block_table = &table_view;
    args.cache_seqlens = &lengths_view;
    args.out = &out_view;
    args.lse = &lse_view;
    args.has_softmax_scale = 1; /* DeepSeek's scale belongs to the head before absorption: 128 + 64 values */
    args.softmax_scale = 1 / sqrt(192.0);

    flashmla_device_info device;
    flashmla_decode_shape shape;
    flashmla_plan* plan;
    flashmla_plan_info info;
    FLASHMLA_INIT(&device);
    FLASHMLA_INIT(&shape);
    FLASHMLA_INIT(&info);
    expect(flashmla_query_device(FLASHMLA_CPU, 0, &device));
    expect(flashmla_decode_shape_of(&args, &shape));
    expect(flashmla_plan_decode(&shape, &device, NULL, &plan));
    expect(flashmla_query_plan(plan, &info));
    printf("%s on %s: %s\n", info.kernel, device.name, info.reason);

    /* C99 has no aligned allocation: take some more and round up. */
    unsigned char* memory = allocate(info.workspace_bytes + FLASHMLA_WORKSPACE_ALIGNMENT);
    void* workspace = memory + (FLASHMLA_WORKSPACE_ALIGNMENT - (uintptr_t)memory % FLASHMLA_WORKSPACE_ALIGNMENT);
    expect(flashmla_run_decode(plan, &args, workspace, info.workspace_bytes, NULL));
    for (i = 0; i < BATCH; ++i) {
        printf("request %d: %d tokens, head 0: lse %.4f, out[0] %.4f\n", i, (int)lengths[i], lse[i * HEADS],
               bf16_to_float(out[(size_t)i * HEADS * DIM_V]));
    }

    flashmla_plan_destroy(plan);
    free(memory);
    free(out);
    free(cache);
    free(q);
    return 0;
}
