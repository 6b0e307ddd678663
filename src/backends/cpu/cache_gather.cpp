// Records back to rows.
#include <algorithm>
#include <cstring>

#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/cache_rows.hpp"
#include "backends/cpu/parallel.hpp"

namespace flashmla::backends::cpu {
namespace {

class Gatherer {
public:
    Gatherer(const core::GatherCall& call, const CacheKernels& kernels) : call_(call), kernels_(kernels) {}

    void by_slots(Range rows) const {
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
            const std::int64_t slot = call_.slots[row];
            if (slot < 0) {
                std::memset(call_.out.row(row), 0, row_bytes());
                continue;
            }
            const std::int64_t page = core::quotient(slot, call_.cache.page_size);
            read(core::record_parts(call_.cache, page, slot - page * call_.cache.page_size), call_.out.row(row));
        }
    }

    void by_table(Range rows) const {
        const std::int32_t* cu = call_.cu_seqlens;
        std::int64_t request = std::upper_bound(cu, cu + call_.requests + 1, rows.begin) - cu - 1;
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
            while (row >= cu[request + 1]) ++request;
            const std::int64_t token = row - cu[request];
            const std::int64_t page = core::quotient(token, call_.cache.page_size);
            const std::int64_t id = call_.block_table[request * call_.table_stride + page];
            read(core::record_parts(call_.cache, id, token - page * call_.cache.page_size), call_.out.row(row));
        }
    }

private:
    std::size_t row_bytes() const { return static_cast<std::size_t>(call_.cache.d_qk) * size_bytes(call_.out.dtype); }

    void read(const core::RecordParts<std::uint8_t>& parts, std::uint8_t* to) const {
        decode_token(kernels_, call_.cache, parts, call_.out.dtype, to);
    }

    const core::GatherCall& call_;
    const CacheKernels& kernels_;
};

}  // namespace

Status gather(const core::GatherCall& call) {
    const Result<const CacheKernels*> kernels = select_cache_kernels();
    if (!kernels.ok()) return kernels.status();
    const Gatherer gatherer(call, *kernels.value());
    const std::int64_t bytes = call.rows * (cache_record_bytes(call.cache.format, call.cache.d_qk) +
                                            call.cache.d_qk * static_cast<std::int64_t>(size_bytes(call.out.dtype)));
    const int threads = threads_for_bytes(bytes, call.max_threads);
    run_on_threads(threads, [&](int thread) {
        const Range rows = even_share(call.rows, threads, thread);
        if (call.slots.data != nullptr) {
            gatherer.by_slots(rows);
        } else if (rows.begin < rows.end) {
            gatherer.by_table(rows);
        }
    });
    return {};
}

}  // namespace flashmla::backends::cpu
