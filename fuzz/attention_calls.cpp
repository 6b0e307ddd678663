// Legal calls of the attention operations, to be spoilt: small, of every form.
#include <memory>

#include "fuzz/planned_call.hpp"

namespace flashmla::fuzz {
namespace {

constexpr PlannedFunctions<flashmla_decode_args, flashmla_decode_shape> kDecode = {
    flashmla_decode_shape_of, flashmla_plan_decode, flashmla_run_decode, flashmla_decode};

// What queries and cache may look like together.
struct DecodeForm {
    flashmla_dtype q, cache, out;
    std::int64_t record, d_qk, d_v;
};
constexpr DecodeForm kForms[] = {
    {FLASHMLA_BFLOAT16, FLASHMLA_BFLOAT16, FLASHMLA_BFLOAT16, 320, 320, 256},
    {FLASHMLA_FLOAT16, FLASHMLA_FLOAT16, FLASHMLA_FLOAT16, 320, 320, 256},
    {FLASHMLA_BFLOAT16, FLASHMLA_UINT8, FLASHMLA_BFLOAT16, 576, 576, 512},
    {FLASHMLA_FLOAT8_E4M3, FLASHMLA_FLOAT8_E4M3, FLASHMLA_BFLOAT16, 576, 576, 512},
    {FLASHMLA_FLOAT16, FLASHMLA_UINT8, FLASHMLA_FLOAT16, 656, 576, 512},
    {FLASHMLA_BFLOAT16, FLASHMLA_FLOAT8_E4M3, FLASHMLA_BFLOAT16, 584, 512, 512},
};

struct DecodeCall : CCall {
    flashmla_decode_args args;

    explicit DecodeCall(Input& input) {
        FLASHMLA_INIT(&args);
        struct_size(args.struct_size);
        integer(args.causal);
        integer(args.has_softmax_scale);
        integer(args.reserved);
        real(args.softmax_scale);
        const DecodeForm form = input.pick(kForms);
        const auto b = static_cast<std::int64_t>(input.below(3)), s_q = static_cast<std::int64_t>(1 + input.below(2)),
                   h_q = static_cast<std::int64_t>(1 + input.below(3));
        tensor("q", args.q, form.q, {b, s_q, h_q, form.d_qk});
        tensor("k_cache", args.k_cache, form.cache, {kPages, kPageSize, 1, form.record}, Role::kCache);
        tensor("out", args.out, form.out, {b, s_q, h_q, form.d_v}, Role::kOutput);
        tensor("lse", args.lse, FLASHMLA_FLOAT32, {b, h_q, s_q}, Role::kOutput);
        if (input.below(2) == 0)
            add_block_table(input, b);
        else
            add_indices(input, form, b, s_q);
        if (input.below(2) == 0) tensor("attn_sink", args.attn_sink, FLASHMLA_FLOAT32, {h_q});
        if (form.record != form.d_qk || form.cache == FLASHMLA_BFLOAT16 || form.cache == FLASHMLA_FLOAT16) return;
        if (input.below(2) == 0) tensor("descale_k", args.descale_k, FLASHMLA_FLOAT32, {input.below(2) == 0 ? 1 : b});
        if (form.q == FLASHMLA_FLOAT8_E4M3 && input.below(2) == 0) {
            tensor("descale_q", args.descale_q, FLASHMLA_FLOAT32, {1});
        }
    }

    flashmla_status call(Input& input) override {
        flashmla_plan_options options;
        FLASHMLA_INIT(&options);
        options.num_workers = static_cast<std::int32_t>(1 + input.below(16) / 15);
        return plan_and_run(input, args, options, kDecode);
    }

private:
    static constexpr std::int64_t kPageSize = 4, kPages = 6;

    void add_block_table(Input& input, std::int64_t b) {
        args.causal = static_cast<std::int32_t>(input.below(2));
        tensor("block_table", args.block_table, FLASHMLA_INT32, {b, 3}, Role::kInput, kPages);
        if (input.below(2) == 0)
            tensor("cache_seqlens", args.cache_seqlens, FLASHMLA_INT32, {b}, Role::kInput, 12);
        else
            tensor("cu_seqlens_k", args.cu_seqlens_k, FLASHMLA_INT32, {b + 1}, Role::kInput, 12);
    }

    void add_indices(Input& input, const DecodeForm& form, std::int64_t b, std::int64_t s_q) {
        const std::int64_t topk = 7, extra_topk = 3;
        tensor("indices", args.indices, FLASHMLA_INT32, {b, s_q, topk}, Role::kInput, kPages * kPageSize + 2);
        if (input.below(2) == 0) tensor("topk_length", args.topk_length, FLASHMLA_INT32, {b}, Role::kInput, topk + 1);
        if (input.below(2) == 0) return;
        tensor("extra_k_cache", args.extra_k_cache, form.cache, {2, 3, 1, form.record}, Role::kCache);
        tensor("extra_indices", args.extra_indices, FLASHMLA_INT32, {b, s_q, extra_topk}, Role::kInput, 7);
        if (input.below(2) == 0) return;
        tensor("extra_topk_length", args.extra_topk_length, FLASHMLA_INT32, {b, s_q}, Role::kInput, extra_topk + 1);
    }
};

struct MergeCall : CCall {
    flashmla_merge_args args;
    const flashmla_tensor* outs[3] = {};
    const flashmla_tensor* lses[3] = {};

    explicit MergeCall(Input& input) {
        const flashmla_dtype dtypes[] = {FLASHMLA_BFLOAT16, FLASHMLA_FLOAT16, FLASHMLA_FLOAT32};
        const auto b = static_cast<std::int64_t>(input.below(3)), s_q = static_cast<std::int64_t>(input.below(3)),
                   h_q = static_cast<std::int64_t>(1 + input.below(3)),
                   d_v = static_cast<std::int64_t>(1 + input.below(20));
        const bool batched = input.below(2) == 0;
        const auto add = [&](const flashmla_tensor*& out, const flashmla_tensor*& lse, Role role) {
            if (batched) {
                tensor("outs", out, input.pick(dtypes), {b, s_q, h_q, d_v}, role);
                tensor("lses", lse, FLASHMLA_FLOAT32, {b, h_q, s_q}, role);
            } else {
                tensor("outs", out, input.pick(dtypes), {s_q, h_q, d_v}, role);
                tensor("lses", lse, FLASHMLA_FLOAT32, {s_q, h_q}, role);
            }
        };
        FLASHMLA_INIT(&args);
        args.count = static_cast<std::int32_t>(1 + input.below(3));
        args.outs = outs;
        args.lses = lses;
        struct_size(args.struct_size);
        for (std::int32_t i = 0; i < args.count; ++i) add(outs[i], lses[i], Role::kInput);
        add(args.out, args.lse, Role::kOutput);
    }

    flashmla_status call(Input&) override { return flashmla_merge(&args, nullptr); }
};

}  // namespace

std::unique_ptr<CCall> make_decode(Input& input) { return std::make_unique<DecodeCall>(input); }
std::unique_ptr<CCall> make_merge(Input& input) { return std::make_unique<MergeCall>(input); }

}  // namespace flashmla::fuzz
