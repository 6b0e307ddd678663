// append, gather, convert and copy_pages as verify and bench see them.
#include <algorithm>
#include <cmath>

#include "cli/exit_codes.hpp"
#include "cli/operations/cache_tensor.hpp"
#include "cli/operations/operation_case.hpp"
#include "core/kv_record.hpp"
#include "reference/cache.hpp"
#include "reference/element.hpp"

namespace flashmla::cli {
namespace {

// A cache and rows that belong into it, all of it appended.
class CacheCase : public OperationCase {
public:
    CacheCase(const CaseShape& shape, const CaseDevice& device) : OperationCase(shape, device) {
        FilledCache made =
            plan_cache(tensors_, {.shape = shape, .format = shape.format, .rows = rows(), .permuted = true});
        pages_ = made.view.shape[0];
        slots_ = std::move(made.slots);
        append_ = made.append;
    }

protected:
    std::int64_t rows() const { return shape_.b * shape_.len; }

    std::vector<float> source_row(const TensorView& latent, const TensorView& rope, std::int64_t n) const {
        std::vector<float> row;
        for (const TensorView* part : {&latent, &rope}) {
            for (std::int64_t i = 0; part->rank == 2 && i < part->shape[1]; ++i) {
                row.push_back(static_cast<float>(reference::element(*part, {n, i})));
            }
        }
        return row;
    }

    // What a cache of the format holds after `row` was written into it, in double precision.
    std::vector<double> stored(CacheFormat format, const std::vector<float>& row) const {
        std::vector<std::uint8_t> memory(static_cast<std::size_t>(cache_page_bytes(format, shape_.d_qk, 1)));
        const bool sixteen = !core::record_shape(format, static_cast<int>(shape_.d_qk)).e4m3;
        const DType dtype = format == CacheFormat::kBFloat16  ? DType::kBFloat16
                            : format == CacheFormat::kFloat16 ? DType::kFloat16
                                                              : DType::kUInt8;
        TensorView view = contiguous_view(memory.data(), dtype,
                                          {1, 1, 1, cache_record_bytes(format, shape_.d_qk) / (sixteen ? 2 : 1)});
        view.stride[0] = static_cast<std::int64_t>(memory.size()) / (sixteen ? 2 : 1);
        const reference::CacheTokens tokens(view, shape_.d_qk, scale_of(format));
        tokens.write(0, 0, row, true);
        return tokens.read(0, 0);
    }

    RowCheck hold_each_row(std::int64_t count,
                           const std::function<std::vector<CheckedRow>(std::int64_t)>& rows_of) const {
        return hold_on_threads(sampled(rows(), count, shape_.seed), device_.threads, rows_of);
    }

    double cache_bytes(CacheFormat format, double tokens) const {
        return tokens * static_cast<double>(cache_record_bytes(format, shape_.d_qk));
    }

    static std::string row_text(std::int64_t n, std::int64_t slot) {
        return "row " + std::to_string(n) + " in slot " + std::to_string(slot);
    }

    std::int64_t pages_ = 0;
    std::vector<std::int32_t> slots_;
    AppendArgs append_;
};

// Every value must be the oracle's: the bounds are 0.
std::vector<CheckedRow> exactly(std::vector<double> exact, std::vector<double> got, std::string where) {
    std::vector<double> bound(exact.size(), 0.0);
    return {{std::move(exact), std::move(bound), std::move(got), std::move(where)}};
}

class AppendCase final : public CacheCase {
public:
    using CacheCase::CacheCase;
    Status run() override { return append(append_, device_.buffers.stream()); }

    RowCheck check(std::int64_t count) override {
        const TensorView latent = tensors_.on_host(append_.latent);
        const TensorView rope = append_.rope.rank > 0 ? tensors_.on_host(append_.rope) : TensorView{};
        const reference::CacheTokens tokens(cache_on_host(tensors_, append_.cache), shape_.d_qk, append_.cache_scale);
        return hold_each_row(count, [&](std::int64_t n) {
            const std::int64_t slot = slots_[n];
            return exactly(stored(shape_.format, source_row(latent, rope, n)),
                           tokens.read(slot / shape_.page, slot % shape_.page), row_text(n, slot));
        });
    }

    double bytes() const override {
        return Tensors::bytes(append_.latent) + (append_.rope.rank > 0 ? Tensors::bytes(append_.rope) : 0) +
               cache_bytes(shape_.format, static_cast<double>(rows())) + Tensors::bytes(append_.slot_ids);
    }
};

class GatherCase final : public CacheCase {
public:
    GatherCase(const CaseShape& shape, const CaseDevice& device) : CacheCase(shape, device) {
        require(append(append_, device.buffers.stream()));
        args_ = {.cache = append_.cache,
                 .d_qk = shape.d_qk,
                 .slot_ids = append_.slot_ids,
                 .out = tensors_.output(shape.dtype, {rows(), shape.d_qk}),
                 .cache_scale = append_.cache_scale};
    }

    Status run() override { return gather(args_, device_.buffers.stream()); }

    RowCheck check(std::int64_t count) override {
        const reference::CacheTokens tokens(cache_on_host(tensors_, append_.cache), shape_.d_qk, append_.cache_scale);
        const TensorView out = tensors_.on_host(args_.out);
        return hold_each_row(count, [&](std::int64_t n) {
            const std::int64_t slot = slots_[n];
            std::vector<double> exact = tokens.read(slot / shape_.page, slot % shape_.page);
            std::vector<double> got(exact.size());
            for (std::size_t i = 0; i < exact.size(); ++i) {
                const auto value = static_cast<float>(exact[i]);
                exact[i] = shape_.dtype == DType::kFloat32
                               ? value
                               : core::decode_16bit(shape_.dtype, core::encode_16bit(shape_.dtype, value));
                got[i] = reference::element(out, {n, static_cast<std::int64_t>(i)});
            }
            return exactly(std::move(exact), std::move(got), row_text(n, slot));
        });
    }

    double bytes() const override {
        return Tensors::bytes(args_.out) + cache_bytes(shape_.format, static_cast<double>(rows())) +
               Tensors::bytes(args_.slot_ids);
    }

private:
    GatherArgs args_;
};

class ConvertCase final : public CacheCase {
public:
    ConvertCase(const CaseShape& shape, const CaseDevice& device) : CacheCase(shape, device) {
        require(append(append_, device.buffers.stream()));
        args_ = {.source = append_.cache,
                 .destination = make_cache(tensors_, shape.to, shape, pages_),
                 .d_qk = shape.d_qk,
                 .source_scale = append_.cache_scale,
                 .destination_scale = scale_of(shape.to)};
    }

    Status run() override { return convert(args_, device_.buffers.stream()); }

    RowCheck check(std::int64_t count) override {
        const reference::CacheTokens from(cache_on_host(tensors_, args_.source), shape_.d_qk, args_.source_scale);
        const reference::CacheTokens to(cache_on_host(tensors_, args_.destination), shape_.d_qk,
                                        args_.destination_scale);
        return hold_each_row(count, [&](std::int64_t n) {
            const std::int64_t page = slots_[n] / shape_.page;
            const std::int64_t token = slots_[n] % shape_.page;
            const std::vector<double> source = from.read(page, token);
            return exactly(stored(shape_.to, {source.begin(), source.end()}), to.read(page, token),
                           row_text(n, slots_[n]));
        });
    }

    double bytes() const override {
        const auto tokens = static_cast<double>(pages_ * shape_.page);
        return cache_bytes(shape_.format, tokens) + cache_bytes(shape_.to, tokens);
    }

private:
    ConvertArgs args_;
};

class CopyPagesCase final : public CacheCase {
public:
    CopyPagesCase(const CaseShape& shape, const CaseDevice& device) : CacheCase(shape, device) {
        require(append(append_, device.buffers.stream()));
        const std::vector<std::int32_t> to = random_order(pages_, shape.seed + 1);
        for (std::int64_t page = 0; page < pages_; ++page) {
            pairs_.push_back(static_cast<std::int32_t>(page));
            pairs_.push_back(to[page]);
        }
        args_ = {.source = append_.cache,
                 .destination = make_cache(tensors_, shape.format, shape, pages_),
                 .d_qk = shape.d_qk,
                 .page_pairs = tensors_.of(pairs_, {pages_, 2})};
    }

    Status run() override { return copy_pages(args_, device_.buffers.stream()); }

    RowCheck check(std::int64_t count) override {
        const reference::CacheTokens from(cache_on_host(tensors_, args_.source), shape_.d_qk, append_.cache_scale);
        const reference::CacheTokens to(cache_on_host(tensors_, args_.destination), shape_.d_qk, append_.cache_scale);
        return hold_each_row(count, [&](std::int64_t n) {
            const std::int64_t page = slots_[n] / shape_.page;
            const std::int64_t token = slots_[n] % shape_.page;
            return exactly(from.read(page, token), to.read(pairs_[2 * page + 1], token), row_text(n, slots_[n]));
        });
    }

    double bytes() const override { return 2 * cache_bytes(shape_.format, static_cast<double>(pages_ * shape_.page)); }

private:
    std::vector<std::int32_t> pairs_;
    CopyPagesArgs args_;
};

// The record width that the format is for.
std::int64_t dims_of(CacheFormat format, Draw& draw) {
    if (format == CacheFormat::kFp8_656) return core::kv656::kDimQk;
    if (format == CacheFormat::kFp8_584) return core::kv584::kDimQk;
    return draw.one_of<std::int64_t>({576, 512, 320});
}

CaseShape random_cache(std::uint64_t seed, std::int64_t max_length, std::int64_t /*max_rows*/) {
    Draw draw(seed);
    CaseShape shape{.seed = seed};
    shape.format = draw.one_of({CacheFormat::kBFloat16, CacheFormat::kFloat16, CacheFormat::kFp8Flat,
                                CacheFormat::kFp8_656, CacheFormat::kFp8_584});
    shape.d_qk = dims_of(shape.format, draw);
    const CacheFormat packed = shape.d_qk == 576 ? CacheFormat::kFp8_656 : CacheFormat::kFp8_584;
    shape.to = shape.d_qk == 320 ? draw.one_of({CacheFormat::kBFloat16, CacheFormat::kFloat16, CacheFormat::kFp8Flat})
                                 : draw.one_of({CacheFormat::kBFloat16, CacheFormat::kFp8Flat, packed, packed});
    shape.page = draw.one_of<std::int64_t>({64, 1, 2, 16, 33, 128});
    shape.len = draw.between(0, std::min<std::int64_t>(max_length, 400));
    shape.dtype = draw.one_of({DType::kBFloat16, DType::kFloat16, DType::kFloat32});
    shape.deviation = std::exp2(static_cast<double>(draw.between(-14, 8)));
    return shape;
}

std::vector<CaseShape> every_format(std::initializer_list<std::int64_t> lengths) {
    std::vector<CaseShape> shapes;
    for (const CacheFormat format : kAllCacheFormats) {
        for (const std::int64_t len : lengths) {
            shapes.push_back({.len = len, .d_qk = format == CacheFormat::kFp8_584 ? 512 : 576, .format = format});
        }
    }
    return shapes;
}

}  // namespace

std::vector<OperationInfo> cache_operations() {
    const std::vector<const char*> keys{"dtype", "format", "b", "len", "d_qk", "page"};
    return {
        {"append", "new tokens into the pages of a cache, quantised", keys, every_format({128, 8192, 65536}),
         random_cache, make_case<AppendCase>},
        {"gather", "tokens of a cache back to rows", keys, every_format({8192, 65536}), random_cache,
         make_case<GatherCase>},
        {"convert",
         "a cache into another format",
         {"format", "to", "b", "len", "d_qk", "page"},
         {{.len = 65536},
          {.len = 65536, .to = CacheFormat::kFp8Flat},
          {.len = 65536, .format = CacheFormat::kFp8_656, .to = CacheFormat::kBFloat16},
          {.len = 65536, .d_qk = 512, .to = CacheFormat::kFp8_584}},
         random_cache,
         make_case<ConvertCase>},
        {"copy_pages",
         "whole pages of a cache",
         {"format", "b", "len", "d_qk", "page"},
         every_format({65536}),
         random_cache,
         make_case<CopyPagesCase>},
    };
}

}  // namespace flashmla::cli
