// Decode over every cache format, dense and sparse, as verify and bench see it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/batch_options.hpp"
#include "cli/exit_codes.hpp"
#include "cli/operations/cache_tensor.hpp"
#include "cli/operations/operation_case.hpp"
#include "reference/compare.hpp"

namespace flashmla::cli {
namespace {

class DecodeOverCache final : public OperationCase {
public:
    DecodeOverCache(const CaseShape& shape, const CaseDevice& device) : OperationCase(shape, device) {
        const std::int64_t rows = shape.b * shape.len;
        cache_ = fill_cache(tensors_, {.shape = shape, .format = shape.format, .rows = rows}, device.buffers.stream());
        args_.q = tensors_.normal(shape.dtype, {shape.b, shape.s_q, shape.heads, shape.d_qk}, shape.deviation);
        args_.k_cache = cache_.view;
        args_.out = tensors_.output(shape.dtype, {shape.b, shape.s_q, shape.heads, shape.d_v});
        args_.lse = tensors_.output(DType::kFloat32, {shape.b, shape.heads, shape.s_q});
        args_.softmax_scale = 1 / std::sqrt(kModelHeadDim);
        args_.has_softmax_scale = true;
        args_.causal = shape.causal;
        if (shape.format == CacheFormat::kFp8Flat) args_.descale_k = tensors_.of(std::vector<float>{kFlatScale}, {1});
        if (shape.topk > 0) {
            add_lists();
        } else {
            add_table();
        }
        const bool cpu = device.info.device.type == DeviceType::kCpu;
        const Result<DecodeShape> planned = decode_shape(args_);
        if (!planned.ok()) {
            status_ = planned.status();
            return;
        }
        const Result<DecodePlan> plan =
            plan_decode(planned.value(), device.info,
                        {.batch_invariant = false, .kernel = {}, .num_workers = cpu ? device.threads : 0});
        status_ = plan.status();
        if (!plan.ok()) return;
        plan_ = plan.value();
        workspace_ = device.buffers.allocate(plan_.workspace_bytes);
    }

    Status run() override {
        if (!status_.ok()) return status_;
        return run_decode(plan_, args_, workspace_, plan_.workspace_bytes, device_.buffers.stream());
    }

    RowCheck check(std::int64_t rows) override {
        DecodeArgs host = args_;
        host.k_cache = cache_on_host(tensors_, args_.k_cache);
        for (TensorView DecodeArgs::*member :
             {&DecodeArgs::q, &DecodeArgs::block_table, &DecodeArgs::cache_seqlens, &DecodeArgs::indices,
              &DecodeArgs::attn_sink, &DecodeArgs::descale_k, &DecodeArgs::out, &DecodeArgs::lse}) {
            if ((host.*member).rank > 0) host.*member = tensors_.on_host(args_.*member);
        }
        const std::vector<reference::Row> sample = reference::sample_rows(host, rows, shape_.seed);
        return compare_on_threads(host, sample, rounding_model(plan_), device_.threads);
    }

    std::string kernel() const override { return plan_.kernel; }

    double flops() const override {
        return 2 * pairs() * static_cast<double>(shape_.heads) * static_cast<double>(shape_.d_qk + shape_.d_v);
    }
    double bytes() const override {
        // Of each request's tokens once, or of as many as its lists name when those are fewer.
        const double tokens = shape_.topk > 0
                                  ? static_cast<double>(shape_.b * std::min(shape_.len, shape_.topk * shape_.s_q))
                                  : static_cast<double>(shape_.b * shape_.len);
        return tokens * static_cast<double>(cache_record_bytes(shape_.format, shape_.d_qk)) + Tensors::bytes(args_.q) +
               Tensors::bytes(args_.out);
    }

private:
    // (query token, key) pairs computed, masked by causality or not.
    double pairs() const {
        const std::int64_t keys = shape_.topk > 0 ? shape_.topk : shape_.len;
        return static_cast<double>(shape_.b * shape_.s_q) * static_cast<double>(keys);
    }

    // Request i owns slots [i * len, (i + 1) * len) of the cache's order; its lists name them at random, one in 16 of
    // the entries no token at all.
    void add_lists() {
        Draw draw(shape_.seed + 2);
        std::vector<std::int32_t> ids(static_cast<std::size_t>(shape_.b * shape_.s_q * shape_.topk));
        for (std::size_t i = 0; i < ids.size(); ++i) {
            const std::int64_t request = static_cast<std::int64_t>(i) / (shape_.s_q * shape_.topk);
            const bool masked = shape_.len == 0 || draw.between(0, 15) == 0;
            ids[i] = masked ? draw.one_of({-1, std::numeric_limits<std::int32_t>::max()})
                            : cache_.slots[request * shape_.len + draw.between(0, shape_.len - 1)];
        }
        args_.indices = tensors_.of(ids, {shape_.b, shape_.s_q, shape_.topk});
        args_.attn_sink = tensors_.normal(DType::kFloat32, {shape_.heads});
    }

    // Pages of its own for each request, in order; the table's spare column holds a wild id.
    void add_table() {
        const std::int64_t pages = (shape_.len + shape_.page - 1) / shape_.page;
        std::vector<std::int32_t> table;
        for (std::int64_t i = 0; i < shape_.b; ++i) {
            for (std::int64_t page = 0; page < pages; ++page)
                table.push_back(static_cast<std::int32_t>(i * pages + page));
            table.push_back(-1);
        }
        args_.block_table = tensors_.of(table, {shape_.b, pages + 1});
        args_.cache_seqlens = tensors_.of(
            std::vector<std::int32_t>(static_cast<std::size_t>(shape_.b), static_cast<std::int32_t>(shape_.len)),
            {shape_.b});
    }

    Status status_;
    FilledCache cache_;
    DecodeArgs args_;
    DecodePlan plan_;
    void* workspace_ = nullptr;
};

CaseShape random_decode(std::uint64_t seed, std::int64_t max_length, std::int64_t max_rows, bool sparse) {
    Draw draw(seed);
    CaseShape shape{.seed = seed};
    shape.format =
        draw.one_of({CacheFormat::kBFloat16, CacheFormat::kFp8Flat, CacheFormat::kFp8_656, CacheFormat::kFp8_584});
    shape.d_qk = shape.format == CacheFormat::kFp8_584 ? 512 : 576;
    shape.dtype = draw.one_of({DType::kBFloat16, DType::kFloat16});
    if (shape.format == CacheFormat::kBFloat16 && shape.dtype == DType::kFloat16) shape.format = CacheFormat::kFloat16;
    shape.page = draw.one_of<std::int64_t>({64, 1, 2, 17, 128});
    shape.heads = draw.one_of<std::int64_t>({1, 3, 16, 63, 64, 128});
    shape.s_q = draw.between(1, 3);
    shape.b = draw.between(1, std::max<std::int64_t>(1, max_rows / (shape.heads * shape.s_q)));
    shape.len = draw.between(0, max_length / shape.b / 4);
    shape.causal = !sparse && draw.between(0, 1) == 1;
    shape.topk = sparse ? draw.between(1, std::min<std::int64_t>(max_length / 8, 2048)) : 0;
    shape.deviation = std::exp2(static_cast<double>(draw.between(-3, 1)));
    return shape;
}

CaseShape random_dense(std::uint64_t seed, std::int64_t max_length, std::int64_t max_rows) {
    return random_decode(seed, max_length, max_rows, false);
}
CaseShape random_sparse(std::uint64_t seed, std::int64_t max_length, std::int64_t max_rows) {
    return random_decode(seed, max_length, max_rows, true);
}

std::vector<CaseShape> in_every_format(const std::vector<CaseShape>& shapes) {
    std::vector<CaseShape> all;
    for (const CaseShape& shape : shapes) {
        for (const CacheFormat format : kAllCacheFormats) {
            CaseShape made = shape;
            made.format = format;
            made.d_qk = format == CacheFormat::kFp8_584 ? 512 : 576;
            if (format == CacheFormat::kFloat16) made.dtype = DType::kFloat16;
            all.push_back(made);
        }
    }
    return all;
}

}  // namespace

std::vector<OperationInfo> decode_operations() {
    return {
        {"decode_formats",
         "dense decode from every cache format",
         {"dtype", "format", "b", "h_q", "s_q", "len", "d_qk", "d_v", "causal", "page"},
         in_every_format({{.len = 8192, .deviation = 0.5}, {.b = 4, .len = 4096, .heads = 16, .deviation = 0.5}}),
         random_dense,
         make_case<DecodeOverCache>,
         true},
        {"sparse_decode",
         "decode by index lists, from every cache format",
         {"dtype", "format", "b", "h_q", "s_q", "len", "topk", "d_qk", "d_v", "page"},
         in_every_format({{.len = 16384, .topk = 2048, .deviation = 0.5},
                          {.b = 2, .len = 16384, .s_q = 2, .topk = 2048, .deviation = 0.5}}),
         random_sparse,
         make_case<DecodeOverCache>,
         true},
    };
}

}  // namespace flashmla::cli
