// Whole pages: copied as they are, or converted token by token to another format.
#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/cache_rows.hpp"
#include "backends/cpu/parallel.hpp"

namespace flashmla::backends::cpu {
namespace {

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
    const std::int64_t bytes = tokens * cache_record_bytes(call.source.format, call.source.d_qk);
    const int threads = threads_for_bytes(2 * bytes, call.max_threads);
    run_on_threads(threads, [&](int thread) {
        const Writer writer(bytes);
        for_each_page(even_share(tokens, threads, thread), page_size, [&](std::int64_t pair, Range range) {
            const std::int64_t at = pair * call.pair_stride;
            copy_records(call.source, {call.pairs[at], range.begin}, call.destination,
                         {call.pairs[at + 1], range.begin}, range.end - range.begin, writer);
        });
    });
    return {};
}

namespace {

// One record of the source as one of the destination: straight where either holds plain values.
void convert_token(const CacheKernels& kernels, const core::ConvertCall& call, const TokenEncoder& encoder,
                   const core::RecordParts<std::uint8_t>& from, const core::RecordParts<std::uint8_t>& to) {
    const CacheFormat format = call.destination.format;
    const int d_qk = call.destination.d_qk;
    if (is_16bit(format)) {
        decode_token(kernels, call.source, from, element_type(format), to.values);
        return;
    }
    float row[core::kMaxRecordValues];
    TokenValues values;
    if (is_16bit(call.source.format)) {
        values = divide_row(format, d_qk, element_type(call.source.format), from.values);
    } else {
        auto* bytes = reinterpret_cast<std::uint8_t*>(row);
        decode_token(kernels, call.source, from, DType::kFloat32, bytes);
        values = divide_row(format, d_qk, DType::kFloat32, bytes);
    }
    encoder.encode(values, to);
}

}  // namespace

Status convert(const core::ConvertCall& call) {
    const Result<const CacheKernels*> selected = select_cache_kernels();
    if (!selected.ok()) return selected.status();
    const CacheKernels& kernels = *selected.value();
    const TokenEncoder encoder(kernels, call.destination, call.power_of_two);
    const std::int64_t tokens = call.source.num_pages * call.source.page_size;
    const std::int64_t written = tokens * cache_record_bytes(call.destination.format, call.destination.d_qk);
    const std::int64_t read = tokens * cache_record_bytes(call.source.format, call.source.d_qk);
    const int threads = threads_for_bytes(written + read, call.max_threads);
    run_on_threads(threads, [&](int thread) {
        const Writer writer(written);
        RecordStage stage(call.destination);
        for_each_page(even_share(tokens, threads, thread), call.source.page_size, [&](std::int64_t page, Range range) {
            const auto source = [&](std::int64_t token) { return core::record_parts(call.source, page, token); };
            if (!writer.streams()) {
                for (std::int64_t token = range.begin; token < range.end; ++token) {
                    convert_token(kernels, call, encoder, source(token),
                                  core::record_parts(call.destination, page, token));
                }
                return;
            }
            for (std::int64_t begin = range.begin; begin < range.end; begin += stage.capacity()) {
                const std::int64_t count = core::min_of(stage.capacity(), range.end - begin);
                for (std::int64_t i = 0; i < count; ++i) {
                    convert_token(kernels, call, encoder, source(begin + i), stage.parts(i));
                }
                stage.write(call.destination, {page, begin}, count, writer);
            }
        });
    });
    return {};
}

}  // namespace flashmla::backends::cpu
