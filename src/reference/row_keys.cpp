#include "reference/row_keys.hpp"

#include <algorithm>

#include "reference/cache.hpp"
#include "reference/decode.hpp"

namespace flashmla::reference {
namespace {

std::int32_t int_at(const TensorView& view, std::int64_t i, std::int64_t j = 0, std::int64_t k = 0) {
    return static_cast<const std::int32_t*>(view.data)[i * view.stride[0] + j * view.stride[1] + k * view.stride[2]];
}

// One KV head of a cache.
TensorView head_of(TensorView cache, std::int64_t head) {
    if (cache.rank == 0) return cache;
    const std::int64_t bytes = head * cache.stride[2] * static_cast<std::int64_t>(size_bytes(cache.dtype));
    cache.data = static_cast<std::uint8_t*>(cache.data) + bytes;
    cache.shape[2] = 1;
    return cache;
}

}  // namespace

double descale_of(const TensorView& descale, std::int64_t request) {
    if (descale.rank == 0) return 1;
    return static_cast<const float*>(descale.data)[descale.shape[0] == 1 ? 0 : request * descale.stride[0]];
}

RowKeys::RowKeys(const DecodeArgs& args, const Row& row)
    : args_(args),
      row_(row),
      format_(cache_format_of(args.q.shape[3], args.k_cache).value()),
      descale_(descale_of(args.descale_k, row.request)) {
    const std::int64_t heads_per_kv = args.q.shape[2] / args.k_cache.shape[2];
    args_.k_cache = head_of(args.k_cache, row.head / heads_per_kv);
    args_.extra_k_cache = head_of(args.extra_k_cache, row.head / heads_per_kv);
    if (args.indices.rank == 0) {
        count_ = visible_keys(args, row);
    } else {
        list(args_.k_cache, args.indices, args.topk_length, false);
        if (args.extra_k_cache.rank != 0) list(args_.extra_k_cache, args.extra_indices, args.extra_topk_length, true);
        count_ = static_cast<std::int64_t>(places_.size());
    }
}

void RowKeys::decode_all() const {
    for (std::int64_t j = 0; j < count_; ++j) {
        Place place;
        const std::vector<double> values =
            CacheTokens(locate(j, place), args_.q.shape[3]).read(place.page, place.token);
        decoded_.insert(decoded_.end(), values.begin(), values.end());
    }
}

// Entries at or past the length do not exist; ids outside the pool name nothing; everything else counts, as often as it
// stands there.
void RowKeys::list(const TensorView& cache, const TensorView& indices, const TensorView& lengths, bool extra) {
    std::int64_t entries = indices.shape[2];
    if (lengths.rank != 0) {
        const std::int64_t length =
            lengths.rank == 1 ? int_at(lengths, row_.request) : int_at(lengths, row_.request, row_.token);
        entries = std::min<std::int64_t>(entries, std::max<std::int64_t>(length, 0));
    }
    for (std::int64_t e = 0; e < entries; ++e) {
        const std::int64_t id = int_at(indices, row_.request, row_.token, e);
        if (id < 0 || id >= cache.shape[0] * cache.shape[1]) continue;
        places_.push_back({extra, id / cache.shape[1], id % cache.shape[1]});
    }
}

// The place of key j, and the cache that it is a place of.
TensorView RowKeys::locate(std::int64_t j, Place& place) const {
    if (args_.indices.rank == 0) {
        place.page = int_at(args_.block_table, row_.request, j / args_.k_cache.shape[1]);
        place.token = j % args_.k_cache.shape[1];
    } else {
        place = places_[j];
    }
    return place.extra ? args_.extra_k_cache : args_.k_cache;
}

void RowKeys::read(std::int64_t j, std::vector<double>& values) const {
    const std::int64_t d_qk = args_.q.shape[3];
    values.resize(d_qk);
    if (!is_16bit(format_)) {
        if (decoded_.empty()) decode_all();
        for (std::int64_t i = 0; i < d_qk; ++i) values[i] = decoded_[j * d_qk + i] * descale_;
        return;
    }
    Place place;
    const TensorView cache = locate(j, place);
    const std::uint16_t* codes = data_16bit(cache) + place.page * cache.stride[0] + place.token * cache.stride[1];
    for (std::int64_t i = 0; i < d_qk; ++i) values[i] = core::decode_16bit(cache.dtype, codes[i]);
}

}  // namespace flashmla::reference
