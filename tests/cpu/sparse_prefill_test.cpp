// Sparse prefill against the oracle, on every path: the case is a sparse decode case of one request seen as prefill.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/float_formats.hpp"
#include "cpu/paths.hpp"
#include "reference/decode_case.hpp"
#include "reference/sparse_prefill.hpp"
#include "support/check_decode.hpp"

namespace flashmla::cpu_tests {
namespace {

using reference::DecodeCase;
using reference::DecodeSpec;

struct PrefillCase {
    CpuPath path;
    DecodeSpec spec;
};

void PrintTo(const PrefillCase& value, std::ostream* stream) {
    *stream << value.path.name << ": " << describe(value.spec);
}

// The decode call of a case with one request and pages of one token, as prefill over its pool. lse and max_logits lie
// in `scalars`, rows of 2 h_q, with a gap of NaN patterns behind each row.
SparsePrefillArgs as_prefill(const DecodeArgs& decode, std::vector<float>& scalars) {
    const std::int64_t s_q = decode.q.shape[1], h_q = decode.q.shape[2];
    const auto drop_batch = [](TensorView view) {
        --view.rank;
        for (int axis = 0; axis < view.rank; ++axis) {
            view.shape[axis] = view.shape[axis + 1];
            view.stride[axis] = view.stride[axis + 1];
        }
        return view;
    };
    SparsePrefillArgs args;
    args.q = drop_batch(decode.q);
    args.kv = decode.k_cache;
    args.kv.rank = 3;
    args.kv.shape = {decode.k_cache.shape[0], 1, decode.k_cache.shape[3]};
    args.kv.stride = {decode.k_cache.stride[0], decode.k_cache.stride[2], 1};
    args.indices = decode.indices;
    args.indices.shape = {s_q, 1, decode.indices.shape[2]};
    args.indices.stride = {decode.indices.stride[1], 1, 1};
    if (decode.topk_length.rank != 0) args.topk_length = drop_batch(decode.topk_length);
    args.attn_sink = decode.attn_sink;
    args.out = drop_batch(decode.out);
    scalars.assign(s_q * 3 * h_q, core::float_from_bits(DecodeCase::kUnwrittenLse));
    args.max_logits = contiguous_view(scalars.data(), DType::kFloat32, {s_q, h_q});
    args.lse = contiguous_view(scalars.data() + h_q, DType::kFloat32, {s_q, h_q});
    args.max_logits.stride[0] = args.lse.stride[0] = 3 * h_q;
    args.softmax_scale = decode.softmax_scale;
    args.has_softmax_scale = decode.has_softmax_scale;
    return args;
}

Status run(const CpuPath& path, const SparsePrefillArgs& args) {
    const ForcedIsa forced(path.name.c_str());
    return sparse_prefill(args, {.batch_invariant = false, .kernel = {}, .num_workers = 2});
}

class SparsePrefill : public testing::TestWithParam<PrefillCase> {};

TEST_P(SparsePrefill, Matches) {
    const auto& [path, spec] = GetParam();
    DecodeCase c(spec);
    std::vector<float> scalars;
    const SparsePrefillArgs args = as_prefill(c.args(), scalars);
    const Status status = run(path, args);
    ASSERT_TRUE(status.ok()) << "refused: " << status.message();
    SparsePrefillArgs live = args;  // heads with a right answer
    if (spec.live_heads > 0) {
        for (TensorView* view : {&live.q, &live.out, &live.max_logits, &live.lse}) view->shape[1] = spec.live_heads;
    }
    EXPECT_EQ(compare_sparse_prefill(live, rounding_model(path, spec.dtype, cache_format(spec))), "");
    int gaps = 0;
    for (float value : scalars) gaps += core::float_bits(value) == DecodeCase::kUnwrittenLse;
    EXPECT_EQ(gaps, static_cast<int>(scalars.size() / 3)) << "written past a row of lse, or not written";
}

std::vector<PrefillCase> cases() {
    std::vector<DecodeSpec> specs;
    const auto add = [&specs](std::string name, std::int64_t tokens, std::int64_t heads,
                              std::int64_t topk) -> DecodeSpec& {
        DecodeSpec& spec = specs.emplace_back();
        spec.name = std::move(name);
        spec.seed = 24000 + specs.size();
        spec.lengths = {300};
        spec.page_size = 1;
        spec.pages = reference::PageOrder::kSequential;
        spec.s_q = tokens;
        spec.h_q = heads;
        spec.topk = topk;
        spec.dtype = specs.size() % 2 == 0 ? DType::kBFloat16 : DType::kFloat16;
        spec.list_lengths = specs.size() % 3 == 0 ? reference::ListLengths::kAll : reference::ListLengths::kPerToken;
        return spec;
    };
    add("tokens_63", 63, 2, 65);
    add("tokens_65", 65, 1, 128);
    add("tokens_66_sink", 66, 3, 40).attn_sink = true;
    add("heads_128", 2, 128, 100).logit_std = 8;
    add("heads_9_spread_logits", 5, 9, 576).logit_std = 50;
    add("heads_65_sink", 2, 65, 2100).attn_sink = true;
    add("width_1", 20, 16, 1);
    add("all_masked", 3, 16, 64).masked = 1;
    add("no_tokens", 3, 16, 64).lengths = {0};
    add("strided", 4, 12, 96).strided_q = specs.back().strided_out = true;
    DecodeSpec& small = add("dims_320", 4, 20, 70);
    small.d_qk = 320;
    small.d_v = 256;
    add("dims_512", 4, 20, 70).d_qk = 512;
    for (const std::int64_t tokens : {64, 128}) add("tokens_" + std::to_string(tokens), tokens, 1, 128);
    for (const std::int64_t heads : {1, 3, 8, 12, 20, 32, 48, 63, 64, 96, 126}) {
        add("heads_" + std::to_string(heads), 2, heads, 70);
    }
    for (const std::int64_t topk : {63, 65, 96, 100, 192, 576, 2047}) add("topk_" + std::to_string(topk), 2, 3, topk);
    add("nan_in_padding_heads", 3, 64, 70).live_heads = 8;
    std::vector<PrefillCase> all;
    for (const CpuPath& path : cpu_paths()) {
        if (path.emulated) continue;
        for (std::size_t i = 0; i < specs.size(); i += kSanitized ? 3 : 1) all.push_back({path, specs[i]});
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(SparsePrefill, SparsePrefill, testing::ValuesIn(cases()), [](const auto& info) {
    return info.param.path.name + "_" + testing_support::test_name({info.param.spec, info.index});
});

TEST(SparsePrefillLimits, MistakesAreNamedAndNothingIsWritten) {
    DecodeSpec spec;
    spec.lengths = {9};
    spec.page_size = 1;
    spec.h_q = 2;
    spec.s_q = 3;
    spec.topk = 4;
    DecodeCase c(spec);
    std::vector<float> scalars;
    const SparsePrefillArgs good = as_prefill(c.args(), scalars);
    const struct {
        const char* message;
        void (*make)(SparsePrefillArgs&);
    } mistakes[] = {
        {"indices: got rank 2, wanted rank 3: (s_q, h_kv, topk)", [](SparsePrefillArgs& a) { a.indices.rank = 2; }},
        {"topk: got 0", [](SparsePrefillArgs& a) { a.indices.shape[2] = 0; }},
        {"kv: got shape (11, 2, 576)", [](SparsePrefillArgs& a) { a.kv.shape[1] = 2; }},
        {"kv: got dtype float16, wanted bfloat16, q's dtype",
         [](SparsePrefillArgs& a) { a.kv.dtype = DType::kFloat16; }},
        {"topk_length: got shape (2,)",
         [](SparsePrefillArgs& a) { a.topk_length = contiguous_view(a.indices.data, DType::kInt32, {2}); }},
        {"max_logits: got a null pointer", [](SparsePrefillArgs& a) { a.max_logits.data = nullptr; }},
        {"lse: got rank 3", [](SparsePrefillArgs& a) { a.lse.rank = 3; }},
    };
    const std::vector<std::uint16_t> before = c.out();
    for (const auto& mistake : mistakes) {
        SparsePrefillArgs args = good;
        mistake.make(args);
        const Status status = sparse_prefill(args);
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_NE(status.message().find(mistake.message), std::string::npos) << status.message();
    }
    EXPECT_EQ(c.out(), before);
}

TEST(SparsePrefillLimits, NoTokensAndManyTokens) {
    std::vector<std::int32_t> ids(65600 * 4, -1);
    std::vector<std::uint16_t> q(65600 * 320, core::float_to_bf16(1)), kv(2 * 320, core::float_to_bf16(0.5f));
    std::vector<std::uint16_t> out(65600 * 256, 0x7fa5);
    std::vector<float> lse(65600, -1), max(65600, -1);
    for (std::size_t i = 0; i < ids.size(); i += 8)
        ids[i] = static_cast<std::int32_t>(i / 8 % 2);  // every second token
    for (const std::int64_t tokens : {0, 65600}) {
        SparsePrefillArgs args;
        args.q = contiguous_view(q.data(), DType::kBFloat16, {tokens, 1, 320});
        args.kv = contiguous_view(kv.data(), DType::kBFloat16, {2, 1, 320});
        args.indices = contiguous_view(ids.data(), DType::kInt32, {tokens, 1, 4});
        args.out = contiguous_view(out.data(), DType::kBFloat16, {tokens, 1, 256});
        args.max_logits = contiguous_view(max.data(), DType::kFloat32, {tokens, 1});
        args.lse = contiguous_view(lse.data(), DType::kFloat32, {tokens, 1});
        const Status status = sparse_prefill(args);
        ASSERT_TRUE(status.ok()) << status.message();
    }
    const float logit = 160 / std::sqrt(320.0f);
    for (std::size_t t = 0; t < lse.size(); ++t) {
        const bool empty = t % 2 != 0;
        ASSERT_EQ(core::bf16_to_float(out[t * 256]), empty ? 0 : 0.5f) << t;
        if (empty) {
            ASSERT_EQ(lse[t], std::numeric_limits<float>::infinity()) << t;
            ASSERT_EQ(max[t], -std::numeric_limits<float>::infinity()) << t;
        } else {
            ASSERT_NEAR(lse[t], logit, 1e-4) << t;
            ASSERT_NEAR(max[t], logit, 1e-4) << t;
        }
    }
}

}  // namespace
}  // namespace flashmla::cpu_tests
