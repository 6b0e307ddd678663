// Whole pages: copied as they are, or converted token by token to another format.
#include <cstring>

#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/cache_rows.hpp"
#include "backends/cpu/parallel.hpp"

namespace flashmla::backends::cpu {
namespace {

void copy_bytes(std::uint8_t* to, const std::uint8_t* from, std::int64_t bytes) {
    if (to == nullptr || from == nullptr) return;  // a pool without pages, or a format without that part
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

// Tokens of one page. Bytes beside the records (padding of the page, other layers between tokens) are left alone.
void copy_tokens(const core::CopyPagesCall& call, std::int64_t from_page, std::int64_t to_page, Range tokens) {
    const std::int64_t count = tokens.end - tokens.begin;
    const auto from = core::record_parts(call.source, from_page, tokens.begin);
    const auto to = core::record_parts(call.destination, to_page, tokens.begin);
    if (call.source.format == CacheFormat::kFp8_584) {
        copy_bytes(to.values, from.values, count * core::kv584::kValueBytes);
        copy_bytes(to.scales, from.scales, count * core::kv584::kScaleBytes);
        return;
    }
    const std::int64_t record = cache_record_bytes(call.source.format, call.source.d_qk);
    if (call.source.record_bytes == record && call.destination.record_bytes == record) {
        copy_bytes(to.values, from.values, count * record);
        return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
        copy_bytes(to.values + i * call.destination.record_bytes, from.values + i * call.source.record_bytes, record);
    }
}

// Calls work(pair or page, range of its tokens) for a share of count * page_size tokens.
template <class Work>
void for_each_page(Range share, std::int64_t page_size, const Work& work) {
    std::int64_t page = core::quotient(share.begin, page_size);
    std::int64_t begin = share.begin;
    while (begin < share.end) {
        const std::int64_t page_begin = page * page_size;
        const std::int64_t end = core::min_of(share.end, page_begin + page_size);
        work(page, Range{begin - page_begin, end - page_begin});
        begin = end;
        ++page;
    }
}

}  // namespace

Status copy_pages(const core::CopyPagesCall& call) {
    const std::int64_t page_size = call.source.page_size;
    const std::int64_t tokens = call.count * page_size;
    const std::int64_t bytes = 2 * tokens * cache_record_bytes(call.source.format, call.source.d_qk);
    const int threads = threads_for_bytes(bytes, call.max_threads);
    run_on_threads(threads, [&](int thread) {
        for_each_page(even_share(tokens, threads, thread), page_size, [&](std::int64_t pair, Range range) {
            const std::int64_t at = pair * call.pair_stride;
            copy_tokens(call, call.pairs[at], call.pairs[at + 1], range);
        });
    });
    return {};
}

Status convert(const core::ConvertCall& call) {
    const Result<const CacheKernels*> selected = select_cache_kernels();
    if (!selected.ok()) return selected.status();
    const CacheKernels& kernels = *selected.value();
    const std::int64_t tokens = call.source.num_pages * call.source.page_size;
    const std::int64_t bytes = tokens * (cache_record_bytes(call.source.format, call.source.d_qk) +
                                         cache_record_bytes(call.destination.format, call.destination.d_qk));
    const int threads = threads_for_bytes(bytes, call.max_threads);
    run_on_threads(threads, [&](int thread) {
        float row[core::kMaxRecordValues];
        for_each_page(even_share(tokens, threads, thread), call.source.page_size, [&](std::int64_t page, Range range) {
            for (std::int64_t token = range.begin; token < range.end; ++token) {
                decode_row(kernels, call.source, core::record_parts(call.source, page, token), row);
                const auto parts = core::record_parts(call.destination, page, token);
                encode_row(kernels, call.destination, call.power_of_two, row, parts);
            }
        });
    });
    return {};
}

}  // namespace flashmla::backends::cpu
