#include "cli/operations/cache_tensor.hpp"

#include <algorithm>
#include <numeric>

#include "cli/exit_codes.hpp"
#include "core/kv_record.hpp"

namespace flashmla::cli {
namespace {

constexpr std::int64_t kRopeDims = 64;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Slots of the rows, and how many pages they need.
std::pair<std::vector<std::int32_t>, std::int64_t> slots_of(const CacheContents& contents) {
    const CaseShape& shape = contents.shape;
    std::vector<std::int32_t> slots(static_cast<std::size_t>(contents.rows));
    if (contents.permuted) {
        const std::int64_t pages = std::max<std::int64_t>(1, ceil_div(contents.rows, shape.page));
        std::vector<std::int32_t> all = random_order(pages * shape.page, shape.seed);
        std::copy_n(all.begin(), slots.size(), slots.begin());
        return {slots, pages};
    }
    const std::int64_t pages_each = ceil_div(shape.len, shape.page);
    for (std::int64_t row = 0; row < contents.rows; ++row) {
        slots[row] = static_cast<std::int32_t>(row / shape.len * pages_each * shape.page + row % shape.len);
    }
    return {slots, std::max<std::int64_t>(1, shape.b * pages_each)};
}

}  // namespace

TensorView make_cache(Tensors& tensors, CacheFormat format, const CaseShape& shape, std::int64_t pages) {
    if (!core::record_shape(format, static_cast<int>(shape.d_qk)).e4m3) {
        const DType dtype = format == CacheFormat::kBFloat16 ? DType::kBFloat16 : DType::kFloat16;
        return tensors.output(dtype, {pages, shape.page, 1, shape.d_qk});
    }
    // Whole pages first, since fp8_584 has bytes past its records.
    const TensorView whole = tensors.output(DType::kUInt8, {pages, cache_page_bytes(format, shape.d_qk, shape.page)});
    TensorView view = contiguous_view(whole.data, DType::kUInt8,
                                      {pages, shape.page, 1, cache_record_bytes(format, shape.d_qk)}, whole.device);
    view.stride[0] = whole.stride[0];
    return view;
}

double scale_of(CacheFormat format) { return format == CacheFormat::kFp8Flat ? kFlatScale : 1; }

TensorView cache_on_host(Tensors& tensors, const TensorView& cache) {
    const TensorView whole = contiguous_view(cache.data, cache.dtype, {cache.shape[0], cache.stride[0]}, cache.device);
    TensorView host = cache;
    host.data = tensors.on_host(whole).data;
    host.device = {DeviceType::kCpu, 0};
    return host;
}

FilledCache plan_cache(Tensors& tensors, const CacheContents& contents) {
    const CaseShape& shape = contents.shape;
    const auto [slots, pages] = slots_of(contents);
    const bool has_rope = shape.d_qk == 320 || shape.d_qk == 576 || contents.format == CacheFormat::kFp8_584;
    const std::int64_t rope = has_rope ? kRopeDims : 0;
    FilledCache made{.view = make_cache(tensors, contents.format, shape, pages), .slots = slots, .append = {}};
    made.append.latent = tensors.normal(shape.dtype, {contents.rows, shape.d_qk - rope}, shape.deviation);
    if (has_rope) made.append.rope = tensors.normal(shape.dtype, {contents.rows, rope}, shape.deviation);
    made.append.cache = made.view;
    made.append.slot_ids = tensors.of(made.slots, {contents.rows});
    made.append.cache_scale = scale_of(contents.format);
    return made;
}

FilledCache fill_cache(Tensors& tensors, const CacheContents& contents, StreamHandle stream) {
    FilledCache made = plan_cache(tensors, contents);
    require(append(made.append, stream));
    return made;
}

}  // namespace flashmla::cli
