// Legal calls of the attention operations, to be spoilt: small, of every form.
#include <memory>

#include "fuzz/planned_call.hpp"

namespace flashmla::fuzz {
namespace {

constexpr PlannedFunctions<flashmla_decode_args, flashmla_decode_shape> kDecode = {
    flashmla_decode_shape_of, flashmla_plan_decode, flashmla_run_decode, flashmla_decode};

struct DecodeCall : CCall {
    flashmla_decode_args args;

    explicit DecodeCall(Input& input) {
        constexpr std::int64_t kPageSize = 4, kPages = 6, kWidth = 3, kDimQk = 320, kDimV = 256;
        const auto b = static_cast<std::int64_t>(input.below(3)), s_q = static_cast<std::int64_t>(1 + input.below(2)),
                   h_q = static_cast<std::int64_t>(1 + input.below(3));
        const flashmla_dtype dtype = input.below(2) == 0 ? FLASHMLA_BFLOAT16 : FLASHMLA_FLOAT16;
        FLASHMLA_INIT(&args);
        args.causal = static_cast<std::int32_t>(input.below(2));
        struct_size(args.struct_size);
        integer(args.causal);
        integer(args.has_softmax_scale);
        integer(args.reserved);
        real(args.softmax_scale);
        tensor("q", args.q, dtype, {b, s_q, h_q, kDimQk});
        tensor("k_cache", args.k_cache, dtype, {kPages, kPageSize, 1, kDimQk}, Role::kCache);
        tensor("block_table", args.block_table, FLASHMLA_INT32, {b, kWidth}, Role::kInput, kPages);
        tensor("out", args.out, dtype, {b, s_q, h_q, kDimV}, Role::kOutput);
        tensor("lse", args.lse, FLASHMLA_FLOAT32, {b, h_q, s_q}, Role::kOutput);
        if (input.below(2) == 0)
            tensor("cache_seqlens", args.cache_seqlens, FLASHMLA_INT32, {b}, Role::kInput, 12);
        else
            tensor("cu_seqlens_k", args.cu_seqlens_k, FLASHMLA_INT32, {b + 1}, Role::kInput, 12);
    }

    flashmla_status call(Input& input) override {
        flashmla_plan_options options;
        FLASHMLA_INIT(&options);
        options.num_workers = static_cast<std::int32_t>(1 + input.below(16) / 15);
        return plan_and_run(input, args, options, kDecode);
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
