#include "backends/cpu/key_walk.hpp"

#include "backends/cpu/config.hpp"
#include "core/kv_record.hpp"
#include "core/planted_fault.hpp"

namespace flashmla::backends::cpu {
namespace {

bool names_token(const KeyPool& pool, std::int32_t id) { return id >= 0 && id < pool.tokens(); }

void point_at(KeyRows& rows, int k, const LatentCall& call, const KeyPool& pool, int kv_head, std::int64_t page,
              std::int64_t offset) {
    std::int64_t page_bytes = pool.page_bytes;
    if (core::planted(core::PlantedFault::kWrongPageStride)) page_bytes = pool.page_size * pool.token_bytes;
    const std::uint8_t* data = pool.data + page * page_bytes + kv_head * pool.head_bytes;
    const auto parts = core::record_parts(call.shape.format, data, offset, pool.page_size, pool.token_bytes);
    rows.values[k] = parts.values;
    rows.scales[k] = parts.scales;
    rows.rope[k] = parts.rope;
}

}  // namespace

KeyWalk::KeyWalk(const LatentCall& call, const KeySpan& span) : call_(call), span_(span) {
    if (call.sparse()) first_entries_ = call.indices.count(span.request, span.token, static_cast<int>(call.shape.topk));
}

int KeyWalk::next(KeyRows& rows) { return call_.sparse() ? next_listed(rows) : next_paged(rows); }

// Only pages that hold one of the keys are looked up.
int KeyWalk::next_paged(KeyRows& rows) {
    const KeyPool& pool = call_.cache;
    const std::int32_t* table = call_.block_table + span_.request * call_.strides.table_b;
    const int count = core::min_of(kKeyTile, span_.end - span_.begin);
    for (int k = 0; k < count;) {
        const std::int64_t page = table[(span_.begin + k) / pool.page_size];
        for (std::int64_t offset = (span_.begin + k) % pool.page_size; k < count && offset < pool.page_size;
             ++k, ++offset) {
            point_at(rows, k, call_, pool, span_.kv_head, page, offset);
        }
    }
    span_.begin += core::max_of(count, 0);
    return core::max_of(count, 0);
}

int KeyWalk::next_listed(KeyRows& rows) {
    int count = 0;
    for (; count < kKeyTile && span_.begin < span_.end; ++span_.begin) {
        const bool extra = span_.begin >= first_entries_;
        const KeyPool& pool = extra ? call_.extra : call_.cache;
        const core::IndexLists& lists = extra ? call_.extra_indices : call_.indices;
        if (lists.ids == nullptr) break;  // never: a list without ids has no entries
        const std::int32_t id =
            lists.of(span_.request, span_.token)[extra ? span_.begin - first_entries_ : span_.begin];
        if (!names_token(pool, id)) continue;
        point_at(rows, count++, call_, pool, span_.kv_head, id / pool.page_size, id % pool.page_size);
    }
    return count;
}

bool any_key(const LatentCall& call, int request, int token) {
    KeyWalk walk(
        call, {.request = request, .token = token, .kv_head = 0, .begin = 0, .end = call.list_entries(request, token)});
    KeyRows rows;
    return walk.next(rows) > 0;
}

}  // namespace flashmla::backends::cpu
