#include "reference/decode_case.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "core/float_formats.hpp"
#include "reference/case_data.hpp"
#include "reference/case_pool.hpp"
#include "reference/random.hpp"

namespace flashmla::reference {
namespace {

constexpr std::int64_t kRowGap = 24;  // extra elements of a strided row: 48 bytes, still a multiple of 16
constexpr std::int32_t kWildPages[] = {-1, 2147480000, std::numeric_limits<std::int32_t>::min(), 1 << 20};

// Element strides of a tensor stored in axis order `order` (outermost first), with rows of `row` elements.
struct Layout {
    std::array<std::int64_t, kMaxRank> stride{};
    std::int64_t elements = 0;
};

Layout lay_out(const std::array<std::int64_t, kMaxRank>& shape, const std::array<int, kMaxRank>& order,
               std::int64_t row) {
    Layout layout;
    std::int64_t step = 1;
    for (int i = kMaxRank - 1; i >= 0; --i) {
        layout.stride[order[i]] = step;
        step *= i == kMaxRank - 1 ? row : shape[order[i]];
    }
    layout.elements = step;
    return layout;
}

Layout q_layout(const DecodeSpec& spec) {
    const auto b = static_cast<std::int64_t>(spec.lengths.size());
    const std::array<int, 4> order = spec.strided_q ? std::array{0, 2, 1, 3} : std::array{0, 1, 2, 3};
    return lay_out({b, spec.s_q, spec.h_q, spec.d_qk}, order, spec.d_qk + (spec.strided_q ? kRowGap : 0));
}

Layout out_layout(const DecodeSpec& spec) {
    const auto b = static_cast<std::int64_t>(spec.lengths.size());
    return lay_out({b, spec.s_q, spec.h_q, spec.d_v}, {0, 1, 2, 3}, spec.d_v + (spec.strided_out ? kRowGap : 0));
}

Layout lse_layout(const DecodeSpec& spec) {
    const auto b = static_cast<std::int64_t>(spec.lengths.size());
    const std::array<int, 4> order = spec.strided_out ? std::array{0, 2, 1, 3} : std::array{0, 1, 2, 3};
    return lay_out({b, spec.h_q, spec.s_q, 1}, order, 1);
}

// Pages of the pool interleave the layers: page p of this layer starts at (p * layers + layer) packed pages.
// Pages are counted in units of 2 bytes, whatever they hold.
std::int64_t page_elements(const DecodeSpec& spec) {
    return cache_page_bytes(cache_format(spec), spec.d_qk, spec.page_size) * spec.h_kv / 2;
}
std::int64_t layer_offset(const DecodeSpec& spec) { return (spec.pool_layers / 2) * page_elements(spec); }

std::int64_t pages_of(const DecodeSpec& spec, std::int64_t length) {
    return (length + spec.page_size - 1) / spec.page_size;
}

constexpr std::int64_t kCycle = 29;  // pages that a cycled request repeats; one more holds its end

// Leading pages that request i shares with request 0: half of the full pages that both have.
std::int64_t shared_pages(const DecodeSpec& spec, std::size_t i) {
    if (spec.pages != PageOrder::kShared || i == 0) return 0;
    return (std::min(spec.lengths[0], spec.lengths[i]) / spec.page_size + 1) / 2;
}

// Pages of the pool that only request i uses.
std::int64_t owned_pages(const DecodeSpec& spec, std::size_t i) {
    const std::int64_t pages = pages_of(spec, spec.lengths[i]) - shared_pages(spec, i);
    return spec.pages == PageOrder::kCycled ? std::min(pages, kCycle + 1) : pages;
}

TensorView view(const void* base, std::int64_t offset_bytes, DType dtype, Device device, int rank,
                const std::array<std::int64_t, kMaxRank>& shape, const std::array<std::int64_t, kMaxRank>& stride) {
    auto* first = const_cast<char*>(static_cast<const char*>(base)) + offset_bytes;
    return {.data = first, .dtype = dtype, .device = device, .rank = rank, .shape = shape, .stride = stride};
}

template <class T>
void hash_into(std::uint64_t& hash, const std::vector<T>& values) {
    for (const T& value : values) hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3;
}

// What bytes without a live token hold. Ones are NaN in every part of an fp8 record.
std::uint16_t pool_poison(const DecodeSpec& spec) {
    return is_16bit(spec.format) ? poison_code(spec.poison, spec.dtype) : 0xffff;
}

}  // namespace

DecodeCase::DecodeCase(DecodeSpec spec) : spec_(std::move(spec)) {
    fill_table();
    fill_factors();
    fill_pool();
    fill_query();
    if (spec_.topk > 0) {
        fill_extra_pool();
        fill_lists();
    }
    if (spec_.cumulative_lengths) {
        lengths_.push_back(0);
        std::partial_sum(spec_.lengths.begin(), spec_.lengths.end(), std::back_inserter(lengths_));
    } else {
        lengths_ = spec_.lengths;
    }
    lengths_.insert(lengths_.end(), 4, std::numeric_limits<std::int32_t>::max());  // nobody reads past b
    reset_outputs();
    input_hash_ = input_hash();
}

void DecodeCase::fill_table() {
    const std::size_t b = spec_.lengths.size();
    std::int64_t owned = 0;
    for (std::size_t i = 0; i < b; ++i) {
        table_width_ = std::max(table_width_, pages_of(spec_, spec_.lengths[i]));
        owned += owned_pages(spec_, i);
    }
    table_width_ += spec_.spare_columns;
    num_pages_ = owned + spec_.spare_pages;

    std::vector<std::int32_t> ids(num_pages_);
    std::iota(ids.begin(), ids.end(), 0);
    if (spec_.pages == PageOrder::kReversed) std::reverse(ids.begin(), ids.end());
    if (spec_.pages == PageOrder::kPermuted || spec_.pages == PageOrder::kShared) {
        Random random(spec_.seed ^ 0x70616765);
        for (std::int64_t i = num_pages_ - 1; i > 0; --i) std::swap(ids[i], ids[random.between(0, i)]);
    }
    table_.resize(static_cast<std::int64_t>(b) * table_width_ + kGuard);
    for (std::size_t i = 0; i < table_.size(); ++i) table_[i] = kWildPages[i % std::size(kWildPages)];
    const std::int32_t* own = ids.data();
    for (std::size_t i = 0; i < b; ++i) {
        std::int32_t* row = table_.data() + static_cast<std::int64_t>(i) * table_width_;
        const std::int64_t shared = shared_pages(spec_, i);
        const std::int64_t end = pages_of(spec_, spec_.lengths[i]);
        std::copy(table_.data(), table_.data() + shared, row);
        const bool cycled = end - shared > owned_pages(spec_, i);
        for (std::int64_t p = shared; p < end; ++p)
            row[p] = own[cycled ? (p == end - 1 ? kCycle : p % kCycle) : p - shared];
        own += owned_pages(spec_, i);
    }
}

void DecodeCase::fill_pool() {
    const CaseData data(spec_);
    const std::int64_t page_stride = spec_.pool_layers * page_elements(spec_);
    pool_.assign(2 * kGuard + num_pages_ * page_stride, pool_poison(spec_));
    Random random(spec_.seed ^ 0x6b657973);
    std::vector<float> values(spec_.d_qk);
    for (std::size_t i = 0; i < spec_.lengths.size(); ++i) {
        const auto request = static_cast<std::int64_t>(i);
        const std::int32_t* row = table_.data() + request * table_width_;
        const std::int64_t last_page = pages_of(spec_, spec_.lengths[i]) - 1;
        for (std::int64_t key = shared_pages(spec_, i) * spec_.page_size; key < spec_.lengths[i]; ++key) {
            const std::int64_t page = key / spec_.page_size;
            if (spec_.pages == PageOrder::kCycled && page >= kCycle && page < last_page) continue;  // written already
            std::uint16_t* base = pool_.data() + kGuard + layer_offset(spec_) + row[page] * page_stride;
            for (std::int64_t head = 0; head < spec_.h_kv; ++head) {
                const KeyPlace place{base, head, key % spec_.page_size, spec_.page_size};
                if (request == spec_.nan_request) {
                    write_nan(spec_, place);
                } else {
                    data.make_key(random, request, key, values.data());
                    write_key(spec_, values.data(), flat_scale(request), place);
                }
            }
        }
    }
}

void DecodeCase::fill_query() {
    const CaseData data(spec_);
    const Layout layout = q_layout(spec_);
    const std::int64_t size = spec_.fp8_queries ? 1 : 2;
    q_.assign(2 * kGuard + (layout.elements * size + 1) / 2,
              spec_.fp8_queries ? 0xffff : poison_code(Poison::kNan, spec_.dtype));
    Random random(spec_.seed ^ 0x71756572);
    std::vector<float> values(spec_.d_qk);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(spec_.lengths.size()); ++i) {
        for (std::int64_t t = 0; t < spec_.s_q; ++t) {
            for (std::int64_t h = 0; h < spec_.h_q; ++h) {
                const std::int64_t offset = i * layout.stride[0] + t * layout.stride[1] + h * layout.stride[2];
                data.make_query(random, i, values.data());
                const bool dead = !is_live({i, t, h}) && i != spec_.nan_request;
                if (dead) std::fill(values.begin(), values.end(), h % 2 ? INFINITY : NAN);
                if (spec_.fp8_queries) {
                    auto* row = reinterpret_cast<std::uint8_t*>(q_.data() + kGuard) + offset;
                    const float descale = descale_q_.empty() ? 1 : descale_q_[spec_.descales == 1 ? 0 : i];
                    for (std::int64_t d = 0; d < spec_.d_qk; ++d) row[d] = core::float_to_e4m3(values[d] / descale);
                } else {
                    std::uint16_t* row = q_.data() + kGuard + offset;
                    for (std::int64_t d = 0; d < spec_.d_qk; ++d) row[d] = core::encode_16bit(spec_.dtype, values[d]);
                }
            }
        }
    }
}

void DecodeCase::reset_outputs() {
    out_.assign(2 * kGuard + out_layout(spec_).elements, kUnwrittenOut);
    lse_.assign(2 * kGuard + lse_layout(spec_).elements, core::float_from_bits(kUnwrittenLse));
}

DecodeArgs DecodeCase::args() const {
    DecodeArgs args = args_at({q_.data(), pool_.data(), table_.data(), lengths_.data(),
                               const_cast<std::uint16_t*>(out_.data()), const_cast<float*>(lse_.data())},
                              Device{});
    add_sparse(args);
    return args;
}

DecodeArgs DecodeCase::args_at(const CaseBases& bases, Device device) const {
    const auto b = static_cast<std::int64_t>(spec_.lengths.size());
    const CacheFormat format = cache_format(spec_);
    const std::int64_t size = is_16bit(format) ? 2 : 1;
    const std::int64_t record = cache_record_bytes(format, spec_.d_qk) / size;
    const DType one_byte = spec_.seed % 2 == 0 ? DType::kUInt8 : DType::kFloat8E4m3;
    const TensorView lengths =
        view(bases.lengths, 0, DType::kInt32, device, 1, {spec_.cumulative_lengths ? b + 1 : b}, {1});
    DecodeArgs args;
    args.q = view(bases.q, kGuard * 2, spec_.fp8_queries ? DType::kFloat8E4m3 : spec_.dtype, device, 4,
                  {b, spec_.s_q, spec_.h_q, spec_.d_qk}, q_layout(spec_).stride);
    args.k_cache = view(bases.pool, (kGuard + layer_offset(spec_)) * 2, size == 2 ? spec_.dtype : one_byte, device, 4,
                        {num_pages_, spec_.page_size, spec_.h_kv, record},
                        {spec_.pool_layers * page_elements(spec_) * 2 / size, spec_.h_kv * record, record, 1});
    args.block_table = view(bases.table, 0, DType::kInt32, device, 2, {b, table_width_}, {table_width_, 1});
    (spec_.cumulative_lengths ? args.cu_seqlens_k : args.cache_seqlens) = lengths;
    args.out = view(bases.out, kGuard * 2, spec_.dtype, device, 4, {b, spec_.s_q, spec_.h_q, spec_.d_v},
                    out_layout(spec_).stride);
    args.lse =
        view(bases.lse, kGuard * 4, DType::kFloat32, device, 3, {b, spec_.h_q, spec_.s_q}, lse_layout(spec_).stride);
    args.lse.stride[3] = 0;
    args.softmax_scale = spec_.softmax_scale;
    args.has_softmax_scale = spec_.has_softmax_scale;
    args.causal = spec_.causal;
    return args;
}

bool DecodeCase::inputs_changed() const { return input_hash() != input_hash_; }

std::uint64_t DecodeCase::input_hash() const {
    std::uint64_t hash = 0xcbf29ce484222325;
    hash_into(hash, q_);
    hash_into(hash, pool_);
    hash_into(hash, table_);
    hash_into(hash, lengths_);
    for (const auto* ids : {&ids_, &counts_, &extra_ids_, &extra_counts_}) hash_into(hash, *ids);
    hash_into(hash, extra_pool_);
    return hash;
}

}  // namespace flashmla::reference
