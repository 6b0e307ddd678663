// Legal calls of prefill, its backward and the projections, to be spoilt.
#include <memory>

#include "fuzz/planned_call.hpp"

namespace flashmla::fuzz {
namespace {

constexpr flashmla_dtype k16Bit[] = {FLASHMLA_BFLOAT16, FLASHMLA_FLOAT16};

flashmla_plan_options one_worker() {
    flashmla_plan_options options;
    FLASHMLA_INIT(&options);
    options.num_workers = 1;
    return options;
}

struct SparsePrefillCall : CCall {
    flashmla_sparse_prefill_args args;

    explicit SparsePrefillCall(Input& input) {
        constexpr std::int64_t kDimQk = 320, kDimV = 256, kTokens = 9, kTopk = 5;
        const flashmla_dtype dtype = input.pick(k16Bit);
        const auto s_q = static_cast<std::int64_t>(input.below(4)), h_q = static_cast<std::int64_t>(1 + input.below(3));
        FLASHMLA_INIT(&args);
        struct_size(args.struct_size);
        integer(args.has_softmax_scale);
        real(args.softmax_scale);
        tensor("q", args.q, dtype, {s_q, h_q, kDimQk});
        tensor("kv", args.kv, dtype, {kTokens, 1, kDimQk});
        tensor("indices", args.indices, FLASHMLA_INT32, {s_q, 1, kTopk}, Role::kInput, kTokens + 2);
        tensor("out", args.out, dtype, {s_q, h_q, kDimV}, Role::kOutput);
        tensor("max_logits", args.max_logits, FLASHMLA_FLOAT32, {s_q, h_q}, Role::kOutput);
        tensor("lse", args.lse, FLASHMLA_FLOAT32, {s_q, h_q}, Role::kOutput);
        if (input.below(2) == 0) {
            tensor("topk_length", args.topk_length, FLASHMLA_INT32, {s_q}, Role::kInput, kTopk + 1);
        }
        if (input.below(2) == 0) tensor("attn_sink", args.attn_sink, FLASHMLA_FLOAT32, {h_q});
    }

    flashmla_status call(Input& input) override {
        constexpr PlannedFunctions<flashmla_sparse_prefill_args, flashmla_prefill_shape> kFunctions = {
            flashmla_sparse_prefill_shape_of, flashmla_plan_prefill, flashmla_run_sparse_prefill,
            flashmla_sparse_prefill};
        return plan_and_run(input, args, one_worker(), kFunctions);
    }
};

// Also what the backward pass starts from.
struct DensePrefillCall : CCall {
    flashmla_dense_prefill_args args;
    std::int64_t tokens, h_q, h_kv, d_qk, d_v = 128;
    flashmla_dtype dtype;

    explicit DensePrefillCall(Input& input, Role results = Role::kOutput)
        : tokens(static_cast<std::int64_t>(input.below(5))),
          h_q(static_cast<std::int64_t>(1 + input.below(2)) * 2),
          h_kv(static_cast<std::int64_t>(1 + input.below(2))),
          d_qk(input.below(2) == 0 ? 192 : 128),
          dtype(input.pick(k16Bit)) {
        FLASHMLA_INIT(&args);
        args.causal = static_cast<std::int32_t>(input.below(2));
        args.max_seqlen_q = args.max_seqlen_kv = 1;
        struct_size(args.struct_size);
        integer(args.causal);
        integer(args.has_softmax_scale);
        integer(args.reserved);
        integer(args.max_seqlen_q);
        integer(args.max_seqlen_kv);
        real(args.softmax_scale);
        tensor("q", args.q, dtype, {tokens, h_q, d_qk});
        tensor("k", args.k, dtype, {tokens, h_kv, d_qk});
        tensor("v", args.v, dtype, {tokens, h_kv, d_v});
        // As many requests as tokens, one each.
        tensor("cu_seqlens_q", args.cu_seqlens_q, FLASHMLA_INT32, {tokens + 1}, Role::kInput, tokens + 1);
        tensor("cu_seqlens_kv", args.cu_seqlens_kv, FLASHMLA_INT32, {tokens + 1}, Role::kInput, tokens + 1);
        tensor("out", args.out, dtype, {tokens, h_q, d_v}, results);
        tensor("lse", args.lse, FLASHMLA_FLOAT32, {tokens, h_q}, results);
    }

    flashmla_status call(Input& input) override {
        constexpr PlannedFunctions<flashmla_dense_prefill_args, flashmla_prefill_shape> kFunctions = {
            flashmla_dense_prefill_shape_of, flashmla_plan_prefill, flashmla_run_dense_prefill, flashmla_dense_prefill};
        return plan_and_run(input, args, one_worker(), kFunctions);
    }
};

struct DensePrefillBackwardCall : DensePrefillCall {
    flashmla_dense_prefill_backward_args gradients;

    explicit DensePrefillBackwardCall(Input& input) : DensePrefillCall(input, Role::kInput) {
        FLASHMLA_INIT(&gradients);
        gradients.forward = &args;
        struct_size(gradients.struct_size);
        tensor("dout", gradients.dout, dtype, {tokens, h_q, d_v});
        if (input.below(2) == 0) tensor("dlse", gradients.dlse, FLASHMLA_FLOAT32, {tokens, h_q});
        tensor("dq", gradients.dq, dtype, {tokens, h_q, d_qk}, Role::kOutput);
        tensor("dk", gradients.dk, dtype, {tokens, h_kv, d_qk}, Role::kOutput);
        tensor("dv", gradients.dv, dtype, {tokens, h_kv, d_v}, Role::kOutput);
    }

    flashmla_status call(Input& input) override {
        constexpr PlannedFunctions<flashmla_dense_prefill_backward_args, flashmla_prefill_shape> kFunctions = {
            backward_shape, flashmla_plan_prefill, flashmla_run_dense_prefill_backward,
            flashmla_dense_prefill_backward};
        return plan_and_run(input, gradients, one_worker(), kFunctions);
    }

private:
    // The forward pass's, of the other operation.
    static flashmla_status backward_shape(const flashmla_dense_prefill_backward_args* args,
                                          flashmla_prefill_shape* shape) {
        const flashmla_status status = flashmla_dense_prefill_shape_of(args->forward, shape);
        shape->operation = FLASHMLA_DENSE_PREFILL_BACKWARD;
        return status;
    }
};

struct AbsorbCall : CCall {
    flashmla_absorb_args args;
    bool to_latent;

    explicit AbsorbCall(Input& input) : to_latent(input.below(2) == 0) {
        constexpr flashmla_dtype kDtypes[] = {FLASHMLA_BFLOAT16, FLASHMLA_FLOAT16, FLASHMLA_FLOAT32};
        const flashmla_dtype dtype = input.pick(kDtypes);
        const auto n = static_cast<std::int64_t>(input.below(4)), h = static_cast<std::int64_t>(1 + input.below(3)),
                   head_dim = static_cast<std::int64_t>(1 + input.below(9)),
                   rank = static_cast<std::int64_t>(1 + input.below(20));
        FLASHMLA_INIT(&args);
        struct_size(args.struct_size);
        tensor("x", args.x, dtype, {n, h, to_latent ? head_dim : rank});
        tensor("weight", args.weight, dtype, {h, head_dim, rank});
        tensor("out", args.out, dtype, {n, h, to_latent ? rank : head_dim}, Role::kOutput);
    }

    flashmla_status call(Input&) override {
        return to_latent ? flashmla_absorb_query(&args, nullptr) : flashmla_project_output(&args, nullptr);
    }
};

}  // namespace

std::unique_ptr<CCall> make_sparse_prefill(Input& input) { return std::make_unique<SparsePrefillCall>(input); }
std::unique_ptr<CCall> make_dense_prefill(Input& input) { return std::make_unique<DensePrefillCall>(input); }
std::unique_ptr<CCall> make_dense_prefill_backward(Input& input) {
    return std::make_unique<DensePrefillBackwardCall>(input);
}
std::unique_ptr<CCall> make_absorb(Input& input) { return std::make_unique<AbsorbCall>(input); }

}  // namespace flashmla::fuzz
