// A program of somebody else: only what an installed flashmla offers. Decodes one token against one key, whose value is
// the answer.
#include <flashmla/flashmla.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
    constexpr std::uint16_t kOne = 0x3F80;  // 1.0 in bf16
    std::vector<std::uint16_t> q(576, kOne), page(64 * 576, kOne), out(512, 0);
    std::int32_t table = 0, length = 1;
    float lse = 0;
    flashmla::DecodeArgs args;
    args.q = flashmla::contiguous_view(q.data(), flashmla::DType::kBFloat16, {1, 1, 1, 576});
    args.k_cache = flashmla::contiguous_view(page.data(), flashmla::DType::kBFloat16, {1, 64, 1, 576});
    args.block_table = flashmla::contiguous_view(&table, flashmla::DType::kInt32, {1, 1});
    args.cache_seqlens = flashmla::contiguous_view(&length, flashmla::DType::kInt32, {1});
    args.out = flashmla::contiguous_view(out.data(), flashmla::DType::kBFloat16, {1, 1, 1, 512});
    args.lse = flashmla::contiguous_view(&lse, flashmla::DType::kFloat32, {1, 1, 1});
    const flashmla::Status status = flashmla::decode(args);
    if (!status.ok()) {
        std::fprintf(stderr, "%s\n", status.message().c_str());
        return 1;
    }
    std::printf("flashmla %s out %04x lse %.3f\n", flashmla::build_info().version, out[511], lse);
    return out[511] == kOne ? 0 : 1;
}
