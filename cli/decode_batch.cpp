#include "cli/decode_batch.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "cli/exit_codes.hpp"
#include "cli/normal_codes.hpp"
#include "cli/parallel.hpp"
#include "core/random.hpp"

namespace flashmla::cli {

namespace {

constexpr std::int32_t kWildPage = -1;                      // block-table entries past a request's pages
constexpr std::uint16_t kPoison = 0x7fff;                   // a NaN in bf16 and in fp16
constexpr std::size_t kChunkBytes = std::size_t{64} << 20;  // of pages made at a time

enum Stream : std::uint64_t { kKeyStream = 1, kQueryStream, kPageStream };

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

DType checked_dtype(const BatchSpec& spec) {
    if (spec.d_qk % 4 != 0)
        throw Failure{kExitBadInput, "d_qk: got " + std::to_string(spec.d_qk) + ", want a multiple of 4"};
    return spec.dtype;
}

}  // namespace

std::int64_t BatchSpec::total_keys() const { return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}); }

DecodeBatch::DecodeBatch(const BatchSpec& spec, const DeviceInfo& device, DeviceBuffers& buffers, int host_threads)
    : spec_(spec), buffers_(buffers) {
    const auto b = static_cast<std::int64_t>(spec_.lengths.size());
    const DType dtype = checked_dtype(spec_);
    std::int64_t max_pages = 0;
    for (const std::int32_t length : spec_.lengths) {
        max_pages = std::max(max_pages, ceil_div(length, spec_.page_size));
        num_pages_ += ceil_div(length, spec_.page_size);
    }
    const DecodeShape shape{.b = b,
                            .s_q = spec_.s_q,
                            .h_q = spec_.h_q,
                            .h_kv = 1,
                            .d_qk = spec_.d_qk,
                            .d_v = spec_.d_v,
                            .page_size = spec_.page_size,
                            .max_pages = max_pages,
                            .dtype = dtype,
                            .format = cache_format_16bit(dtype),
                            .causal = spec_.causal};
    const PlanOptions options{
        .batch_invariant = spec_.batch_invariant, .kernel = spec_.kernel, .num_workers = spec_.num_workers};
    plan_ = require(plan_decode(shape, device, options));

    const auto view = [&](DType type, std::initializer_list<std::int64_t> extents) {
        const std::int64_t elements =
            std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
        return contiguous_view(buffers_.allocate(static_cast<std::size_t>(elements) * size_bytes(type)), type, extents,
                               device.device);
    };
    args_.q = view(dtype, {b, spec_.s_q, spec_.h_q, spec_.d_qk});
    args_.k_cache = view(dtype, {num_pages_, spec_.page_size, 1, spec_.d_qk});
    args_.block_table = view(DType::kInt32, {b, max_pages});
    args_.cache_seqlens = view(DType::kInt32, {b});
    args_.out = view(dtype, {b, spec_.s_q, spec_.h_q, spec_.d_v});
    args_.lse = view(DType::kFloat32, {b, spec_.h_q, spec_.s_q});
    args_.softmax_scale = spec_.softmax_scale;
    args_.has_softmax_scale = true;
    args_.causal = spec_.causal;
    workspace_ = buffers_.allocate(plan_.workspace_bytes);
    buffers_.copy_to(args_.cache_seqlens.data, spec_.lengths.data(), spec_.lengths.size() * sizeof(std::int32_t));
    fill_table();
    fill_query();
    fill_pages(std::max(1, host_threads));
}

void DecodeBatch::fill_table() {
    std::vector<std::int32_t> ids(num_pages_);
    std::iota(ids.begin(), ids.end(), 0);
    const std::uint64_t seed = core::random_bits(spec_.seed, kPageStream);
    for (std::int64_t i = num_pages_; i > 1; --i) std::swap(ids[i - 1], ids[core::random_below(seed, i, i)]);
    const std::int64_t width = args_.block_table.shape[1];
    block_table_.assign(spec_.lengths.size() * width, kWildPage);
    std::size_t next = 0;
    for (std::size_t i = 0; i < spec_.lengths.size(); ++i) {
        for (std::int64_t page = 0; page < ceil_div(spec_.lengths[i], spec_.page_size); ++page) {
            block_table_[i * width + page] = ids[next++];
        }
    }
    buffers_.copy_to(args_.block_table.data, block_table_.data(), block_table_.size() * sizeof(std::int32_t));
}

void DecodeBatch::fill_query() {
    const NormalCodes normal(spec_.dtype, spec_.q_std);
    std::vector<std::uint16_t> q(spec_.lengths.size() * spec_.s_q * spec_.h_q * spec_.d_qk);
    normal.fill(core::random_bits(spec_.seed, kQueryStream), 0, q.size(), q.data());
    buffers_.copy_to(args_.q.data, q.data(), q.size() * 2);
}

void DecodeBatch::fill_pages(int host_threads) {
    std::vector<std::int32_t> live(num_pages_, 0);  // tokens of a page that a request owns
    const std::int64_t width = args_.block_table.shape[1];
    for (std::size_t i = 0; i < spec_.lengths.size(); ++i) {
        for (std::int64_t first = 0; first < spec_.lengths[i]; first += spec_.page_size) {
            live[block_table_[i * width + first / spec_.page_size]] =
                static_cast<std::int32_t>(std::min<std::int64_t>(spec_.page_size, spec_.lengths[i] - first));
        }
    }
    const NormalCodes normal(spec_.dtype, spec_.k_std);
    const std::uint64_t seed = core::random_bits(spec_.seed, kKeyStream);
    const std::int64_t page_elements = spec_.page_size * spec_.d_qk;
    const auto page_bytes = static_cast<std::size_t>(page_elements) * 2;
    const std::int64_t chunk = std::clamp<std::int64_t>(static_cast<std::int64_t>(kChunkBytes / page_bytes), 1,
                                                        std::max<std::int64_t>(num_pages_, 1));
    std::vector<std::uint16_t> host(chunk * page_elements);
    for (std::int64_t first = 0; first < num_pages_; first += chunk) {
        const std::int64_t pages = std::min(chunk, num_pages_ - first);
        parallel_items(pages, host_threads, [&](std::int64_t page) {
            std::uint16_t* codes = host.data() + page * page_elements;
            normal.fill(seed, (first + page) * page_elements, page_elements, codes);
            std::fill(codes + live[first + page] * spec_.d_qk, codes + page_elements, kPoison);
        });
        buffers_.copy_to(static_cast<char*>(args_.k_cache.data) + first * page_bytes, host.data(), pages * page_bytes);
    }
}

Status DecodeBatch::run() const {
    return run_decode(plan_, args_, workspace_, plan_.workspace_bytes, buffers_.stream());
}

HostRequest DecodeBatch::host_request(std::int64_t i) const {
    HostRequest request;
    request.length = {spec_.lengths[i]};
    const std::int64_t pages = ceil_div(spec_.lengths[i], spec_.page_size);
    const std::int64_t page_elements = spec_.page_size * spec_.d_qk;
    request.keys.resize(pages * page_elements);
    for (std::int64_t page = 0; page < pages; ++page) {
        const std::int64_t id = block_table_[i * args_.block_table.shape[1] + page];
        request.block_table.push_back(static_cast<std::int32_t>(page));
        buffers_.copy_back(request.keys.data() + page * page_elements,
                           static_cast<const std::uint16_t*>(args_.k_cache.data) + id * page_elements,
                           page_elements * 2);
    }
    const auto copy = [&](auto& values, const TensorView& view) {
        values.resize(view.stride[0]);
        const std::size_t bytes = values.size() * size_bytes(view.dtype);
        buffers_.copy_back(values.data(), static_cast<const char*>(view.data) + i * bytes, bytes);
    };
    copy(request.q, args_.q);
    copy(request.out, args_.out);
    copy(request.lse, args_.lse);
    request.args = args_;
    request.args.q = contiguous_view(request.q.data(), spec_.dtype, {1, spec_.s_q, spec_.h_q, spec_.d_qk});
    request.args.k_cache = contiguous_view(request.keys.data(), spec_.dtype, {pages, spec_.page_size, 1, spec_.d_qk});
    request.args.block_table = contiguous_view(request.block_table.data(), DType::kInt32, {1, pages});
    request.args.cache_seqlens = contiguous_view(request.length.data(), DType::kInt32, {1});
    request.args.out = contiguous_view(request.out.data(), spec_.dtype, {1, spec_.s_q, spec_.h_q, spec_.d_v});
    request.args.lse = contiguous_view(request.lse.data(), DType::kFloat32, {1, spec_.h_q, spec_.s_q});
    return request;
}

}  // namespace flashmla::cli
