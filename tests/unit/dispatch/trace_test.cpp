// FLASHMLA_LOG=1 prints one line a call, and nothing else is ever printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "flashmla/flashmla.hpp"

namespace flashmla::test {
namespace {

// The variable is read at the first call, so it must be set before any.
const bool kTraceIsOn = setenv("FLASHMLA_LOG", "1", 1) == 0;

TEST(Trace, OneLineForACallThatReachesAKernel) {
    ASSERT_TRUE(kTraceIsOn);
    DecodeArgs args;
    args.q = contiguous_view(nullptr, DType::kFloat16, {0, 2, 16, 576});
    args.k_cache = contiguous_view(nullptr, DType::kFloat16, {0, 64, 1, 576});
    args.block_table = contiguous_view(nullptr, DType::kInt32, {0, 3});
    args.cache_seqlens = contiguous_view(nullptr, DType::kInt32, {0});
    args.out = contiguous_view(nullptr, DType::kFloat16, {0, 2, 16, 512});
    args.lse = contiguous_view(nullptr, DType::kFloat32, {0, 16, 2});

    testing::internal::CaptureStderr();
    ASSERT_TRUE(decode(args).ok());
    const std::string line = testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    for (const char* part : {"flashmla: decode", "kernel=cpu_decode_dense", "b=0", "s_q=2", "h_q=16", "dtype=float16",
                             "max_pages=3", "status=ok"}) {
        EXPECT_NE(line.find(part), std::string::npos) << "'" << part << "' in: " << line;
    }

    args.q.rank = 1;
    testing::internal::CaptureStderr();
    EXPECT_FALSE(decode(args).ok());
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// Zeros that a tensor of any test here fits into.
class Zeros {
public:
    TensorView tensor(DType dtype, std::initializer_list<std::int64_t> shape) {
        memory_.emplace_back(std::size_t{1} << 14, 0);
        return contiguous_view(memory_.back().data(), dtype, shape);
    }
    TensorView ints(const std::vector<std::int32_t>& values) {
        TensorView view = tensor(DType::kInt32, {static_cast<std::int64_t>(values.size())});
        std::copy(values.begin(), values.end(), static_cast<std::int32_t*>(view.data));
        return view;
    }

private:
    std::vector<std::vector<std::int64_t>> memory_;
};

struct TracedCall {
    Operation operation;
    Status status;
    std::string text;
    std::vector<std::string> parts;  // that the line must contain
};

template <class Call>
TracedCall traced(Operation operation, const Call& call, std::vector<std::string> parts) {
    testing::internal::CaptureStderr();
    Status status = call();
    return {operation, std::move(status), testing::internal::GetCapturedStderr(), std::move(parts)};
}

DensePrefillBackwardArgs backward_args(Zeros& zeros) {
    DensePrefillBackwardArgs args;
    const DType bf16 = DType::kBFloat16;
    args.forward = {.q = zeros.tensor(bf16, {3, 2, 192}),
                    .k = zeros.tensor(bf16, {5, 1, 192}),
                    .v = zeros.tensor(bf16, {5, 1, 128}),
                    .cu_seqlens_q = zeros.ints({0, 3}),
                    .cu_seqlens_kv = zeros.ints({0, 5}),
                    .out = zeros.tensor(bf16, {3, 2, 128}),
                    .lse = zeros.tensor(DType::kFloat32, {3, 2}),
                    .max_seqlen_q = 3,
                    .max_seqlen_kv = 5,
                    .causal = true};
    args.dout = zeros.tensor(bf16, {3, 2, 128});
    args.dq = zeros.tensor(bf16, {3, 2, 192});
    args.dk = zeros.tensor(bf16, {5, 1, 192});
    args.dv = zeros.tensor(bf16, {5, 1, 128});
    return args;
}

std::vector<TracedCall> calls_of_prefill(Zeros& zeros) {
    const SparsePrefillArgs sparse{.q = zeros.tensor(DType::kFloat16, {2, 3, 576}),
                                   .kv = zeros.tensor(DType::kFloat16, {7, 1, 576}),
                                   .indices = zeros.tensor(DType::kInt32, {2, 1, 4}),
                                   .out = zeros.tensor(DType::kFloat16, {2, 3, 512}),
                                   .max_logits = zeros.tensor(DType::kFloat32, {2, 3}),
                                   .lse = zeros.tensor(DType::kFloat32, {2, 3})};
    const DensePrefillBackwardArgs dense = backward_args(zeros);
    const std::vector<std::string> sizes{"total_q=3", "total_kv=5", "h_q=2", "h_kv=1", "causal=1", "workers="};
    return {
        traced(Operation::kSparsePrefill, [&] { return sparse_prefill(sparse); },
               {"kernel=cpu_sparse_prefill", "total_q=2", "total_kv=7", "topk=4", "dtype=float16", "workspace_bytes="}),
        traced(
            Operation::kDensePrefill, [&] { return dense_prefill(dense.forward); }, sizes),
        traced(
            Operation::kDensePrefillBackward, [&] { return dense_prefill_backward(dense); }, sizes)};
}

std::vector<TracedCall> calls_of_cache(Zeros& zeros) {
    const TensorView bf16 = zeros.tensor(DType::kBFloat16, {2, 4, 1, 576});
    const TensorView packed = zeros.tensor(DType::kUInt8, {2, 4, 1, 656});
    TensorView pairs = zeros.ints({0, 1});
    pairs = contiguous_view(pairs.data, DType::kInt32, {1, 2});
    const AppendArgs put{.latent = zeros.tensor(DType::kBFloat16, {3, 512}),
                         .rope = zeros.tensor(DType::kBFloat16, {3, 64}),
                         .cache = packed,
                         .slot_ids = zeros.ints({0, 5, -1})};
    const GatherArgs get{
        .cache = packed, .slot_ids = zeros.ints({1, 2}), .out = zeros.tensor(DType::kFloat16, {2, 576})};
    return {traced(Operation::kAppend, [&] { return append(put); },
                   {"kernel=cpu_append", " format=fp8_656", " pages=2", "page_size=4", "tokens=3", "dtype=bfloat16"}),
            traced(Operation::kGather, [&] { return gather(get); },
                   {" format=fp8_656", "rows=2", "by=slot_ids", "dtype=float16"}),
            traced(Operation::kCopyPages,
                   [&] { return copy_pages({.source = bf16, .destination = bf16, .page_pairs = pairs}); },
                   {"source_format=bf16", "destination_pages=2", "pairs=1"}),
            traced(Operation::kConvert, [&] { return convert({.source = bf16, .destination = packed}); },
                   {"source_format=bf16", "destination_format=fp8_656", "d_qk=576"})};
}

std::vector<TracedCall> calls_on_rows(Zeros& zeros) {
    const std::vector<TensorView> outs(2, zeros.tensor(DType::kFloat16, {3, 4, 8}));
    const std::vector<TensorView> lses(2, zeros.tensor(DType::kFloat32, {3, 4}));
    const MergeArgs parts{.outs = outs,
                          .lses = lses,
                          .out = zeros.tensor(DType::kFloat32, {3, 4, 8}),
                          .lse = zeros.tensor(DType::kFloat32, {3, 4})};
    const TensorView narrow = zeros.tensor(DType::kFloat32, {3, 2, 4});
    const TensorView wide = zeros.tensor(DType::kFloat32, {3, 2, 16});
    const TensorView weight = zeros.tensor(DType::kFloat32, {2, 4, 16});
    return {
        traced(Operation::kMerge, [&] { return merge(parts); },
               {"parts=2", "s_q=3", "h_q=4", "d_v=8", "dtype=float32", "threads="}),
        traced(Operation::kAbsorb, [&] { return absorb_query({.x = narrow, .weight = weight, .out = wide}); },
               {"projection=absorb_query", "n=3", "h=2", "depth=4", "columns=16"}),
        traced(Operation::kAbsorb, [&] { return project_output({.x = wide, .weight = weight, .out = narrow}); },
               {"projection=project_output", "n=3", "h=2", "depth=16", "columns=4"}),
    };
}

TEST(Trace, OneLineForEveryOtherOperationToo) {
    ASSERT_TRUE(kTraceIsOn);
    Zeros zeros;
    for (const auto& calls : {calls_of_prefill(zeros), calls_of_cache(zeros), calls_on_rows(zeros)}) {
        for (const TracedCall& call : calls) {
            ASSERT_TRUE(call.status.ok()) << call.status.message();
            EXPECT_EQ(std::count(call.text.begin(), call.text.end(), '\n'), 1) << call.text;
            EXPECT_EQ(call.text.rfind(std::string("flashmla: ") + name(call.operation) + " kernel=cpu_", 0), 0U)
                << call.text;
            std::vector<std::string> parts = call.parts;
            parts.insert(parts.end(), {" device=", " host_us=", " status=ok\n"});
            for (const std::string& part : parts) {
                EXPECT_NE(call.text.find(part), std::string::npos) << "'" << part << "' in: " << call.text;
            }
        }
    }
}

}  // namespace
}  // namespace flashmla::test
