// Records back to rows.
#include <algorithm>
#include <cstring>

#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/cache_rows.hpp"
#include "backends/cpu/parallel.hpp"

namespace flashmla::backends::cpu {
namespace {

using Parts = core::RecordParts<std::uint8_t>;

// The records of rows one after the other, from a row on. One that is not there has no values.
class SlotWalk {
public:
    SlotWalk(const core::GatherCall& call, std::int64_t row) : call_(call), row_(row) {}

    Parts next() {
        const std::int64_t slot = call_.slots[row_++];
        if (slot < 0) return {};
        const std::int64_t page = core::quotient(slot, call_.cache.page_size);
        return core::record_parts(call_.cache, page, slot - page * call_.cache.page_size);
    }

private:
    const core::GatherCall& call_;
    std::int64_t row_;
};

class TableWalk {
public:
    TableWalk(const core::GatherCall& call, std::int64_t row) : call_(call), row_(row) {
        const std::int32_t* cu = call.cu_seqlens;
        request_ = std::upper_bound(cu, cu + call.requests + 1, row) - cu - 1;
    }

    Parts next() {
        while (row_ >= call_.cu_seqlens[request_ + 1]) ++request_;
        const std::int64_t token = row_++ - call_.cu_seqlens[request_];
        const std::int64_t page = core::quotient(token, call_.cache.page_size);
        const std::int64_t id = call_.block_table[request_ * call_.table_stride + page];
        return core::record_parts(call_.cache, id, token - page * call_.cache.page_size);
    }

private:
    const core::GatherCall& call_;
    std::int64_t row_;
    std::int64_t request_ = 0;
};

class Gatherer {
public:
    Gatherer(const core::GatherCall& call, const CacheKernels& kernels)
        : call_(call),
          kernels_(kernels),
          row_bytes_(static_cast<std::int64_t>(size_bytes(call.out.dtype)) * call.cache.d_qk),
          record_bytes_(cache_record_bytes(call.cache.format, call.cache.d_qk)) {}

    std::int64_t read_bytes() const { return call_.rows * record_bytes_; }
    std::int64_t written_bytes() const { return call_.rows * row_bytes_; }

    template <class Walk>
    void run(Range rows) const {
        if (rows.begin == rows.end) return;
        const Writer writer(written_bytes());
        Walk walk(call_, rows.begin);
        if (writer.streams()) {
            stream(rows, walk, writer);
        } else {
            for (std::int64_t row = rows.begin; row < rows.end; ++row) read(walk.next(), call_.out.row(row));
        }
    }

private:
    // A few rows are put together before they are streamed out, while the records of the next few are fetched.
    template <class Walk>
    void stream(Range rows, Walk& walk, const Writer& writer) const {
        alignas(64) std::uint8_t stage[4 * core::kMaxRecordValues];
        constexpr std::int64_t kMost = 4;
        const std::int64_t step = core::min_of(kMost, static_cast<std::int64_t>(sizeof(stage)) / row_bytes_);
        Parts ahead[kMost];
        for (std::int64_t i = 0; i < core::min_of(step, rows.end - rows.begin); ++i) ahead[i] = walk.next();
        for (std::int64_t row = rows.begin; row < rows.end; row += step) {
            const std::int64_t count = core::min_of(step, rows.end - row);
            for (std::int64_t i = 0; i < count; ++i) {
                const Parts parts = ahead[i];
                if (row + step + i < rows.end) {
                    ahead[i] = walk.next();
                    prefetch(ahead[i]);
                }
                read(parts, stage + i * row_bytes_);
            }
            if (call_.out.row_bytes == row_bytes_) {
                writer.write(call_.out.row(row), stage, static_cast<std::size_t>(count * row_bytes_));
                continue;
            }
            for (std::int64_t i = 0; i < count; ++i) {
                writer.write(call_.out.row(row + i), stage + i * row_bytes_, static_cast<std::size_t>(row_bytes_));
            }
        }
    }

    void prefetch(const Parts& parts) const {
        if (parts.values == nullptr) return;
        prefetch_lines(parts.values, record_bytes_);
        if (call_.cache.format == CacheFormat::kFp8_584) prefetch_lines(parts.scales, 1);
    }

    void read(const Parts& parts, std::uint8_t* to) const {
        if (parts.values == nullptr) {
            std::memset(to, 0, static_cast<std::size_t>(row_bytes_));
        } else {
            decode_token(kernels_, call_.cache, parts, call_.out.dtype, to);
        }
    }

    const core::GatherCall& call_;
    const CacheKernels& kernels_;
    const std::int64_t row_bytes_;
    const std::int64_t record_bytes_;
};

}  // namespace

Status gather(const core::GatherCall& call) {
    const Result<const CacheKernels*> kernels = select_cache_kernels();
    if (!kernels.ok()) return kernels.status();
    const Gatherer gatherer(call, *kernels.value());
    const int threads = threads_for_bytes(gatherer.read_bytes() + gatherer.written_bytes(), call.max_threads);
    run_on_threads(threads, [&](int thread) {
        const Range rows = even_share(call.rows, threads, thread);
        if (call.slots.data != nullptr) {
            gatherer.run<SlotWalk>(rows);
        } else {
            gatherer.run<TableWalk>(rows);
        }
    });
    return {};
}

}  // namespace flashmla::backends::cpu
