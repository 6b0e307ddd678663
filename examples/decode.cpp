// One decode step in C++: three requests of different lengths over a paged bf16 cache, on the CPU.
//
//   plan once for the shapes, keep the workspace, run every step: run_decode allocates nothing.
#include <flashmla/flashmla.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

namespace {

std::vector<std::uint16_t> random_bf16(std::size_t count, std::mt19937& generator) {
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> values(count);
    // The upper half of a float is a bf16, rounded towards zero; good enough for made-up data.
    for (auto& value : values)
        value = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(generator)) >> 16);
    return values;
}

float bf16_to_float(std::uint16_t code) { return std::bit_cast<float>(std::uint32_t{code} << 16); }

template <class T>
T value_or_exit(flashmla::Result<T> result) {
    if (result.ok()) return std::move(result).value();
    std::fprintf(stderr, "flashmla: %s\n", result.status().message().c_str());
    std::exit(1);
}

}  // namespace

int main() {
    using flashmla::DType;
    constexpr int kBatch = 3, kHeads = 16, kDimQk = 576, kDimV = 512, kPage = 64, kMaxPages = 16;
    const std::vector<std::int32_t> lengths = {450, 1000, 64};

    std::mt19937 generator(0);
    auto q = random_bf16(std::size_t{kBatch} * kHeads * kDimQk, generator);
    auto cache = random_bf16(std::size_t{kBatch} * kMaxPages * kPage * kDimQk, generator);
    std::vector<std::int32_t> block_table(kBatch * kMaxPages);  // page ids; here request i owns 16 pages in a row
    std::iota(block_table.begin(), block_table.end(), 0);
    std::vector<std::uint16_t> out(std::size_t{kBatch} * kHeads * kDimV);
    std::vector<float> lse(kBatch * kHeads);

    const flashmla::DecodeArgs args{
        .q = contiguous_view(q.data(), DType::kBFloat16, {kBatch, 1, kHeads, kDimQk}),
        .k_cache = contiguous_view(cache.data(), DType::kBFloat16, {kBatch * kMaxPages, kPage, 1, kDimQk}),
        .block_table = contiguous_view(block_table.data(), DType::kInt32, {kBatch, kMaxPages}),
        .cache_seqlens = contiguous_view(lengths.data(), DType::kInt32, {kBatch}),
        .cu_seqlens_k = {},
        .out = contiguous_view(out.data(), DType::kBFloat16, {kBatch, 1, kHeads, kDimV}),
        .lse = contiguous_view(lse.data(), DType::kFloat32, {kBatch, kHeads, 1}),
        // DeepSeek's scale belongs to the head before absorption: (128 + 64) ** -0.5.
        .softmax_scale = 1 / std::sqrt(192.0),
        .has_softmax_scale = true,
    };

    const auto device = value_or_exit(flashmla::query_device({}));
    const auto plan = value_or_exit(flashmla::plan_decode(value_or_exit(decode_shape(args)), device));
    std::printf("%s on %s: %s\n", plan.kernel.c_str(), device.name.c_str(), plan.reason.c_str());

    constexpr std::size_t kAlignment = 256;
    const std::size_t rounded = (plan.workspace_bytes / kAlignment + 1) * kAlignment;
    const std::unique_ptr<void, decltype(&std::free)> workspace(std::aligned_alloc(kAlignment, rounded), &std::free);
    const flashmla::Status status = run_decode(plan, args, workspace.get(), plan.workspace_bytes);
    if (!status.ok()) {
        std::fprintf(stderr, "flashmla: %s\n", status.message().c_str());
        return 1;
    }
    for (int i = 0; i < kBatch; ++i) {
        std::printf("request %d: %d tokens, head 0: lse %.4f, out[0] %.4f\n", i, static_cast<int>(lengths[i]),
                    lse[i * kHeads], bf16_to_float(out[std::size_t{kHeads} * kDimV * i]));
    }
}
