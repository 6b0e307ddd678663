// New tokens into their slots. A slot belongs to one thread, which takes its tokens in order: of two tokens for one
// slot the last one stays, whatever the number of threads.
#include <cstring>

#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/cache_rows.hpp"
#include "backends/cpu/parallel.hpp"
#include "core/planted_fault.hpp"

namespace flashmla::backends::cpu {
namespace {

// Slots that go to one thread together, so that neighbors in memory mostly have the same writer.
constexpr std::int64_t kRun = 16;

// Multiplying with the golden ratio spreads both consecutive and evenly spaced runs evenly over the threads.
int owner(std::int64_t slot, int threads) {
    const std::uint64_t mixed = static_cast<std::uint64_t>(slot / kRun) * 0x9e3779b97f4a7c15ULL;
    return static_cast<int>(((mixed >> 32) * static_cast<std::uint64_t>(threads)) >> 32);
}

// Products and sums are each rounded to fp32.
void rotate(float* x, int width, const float* cos_sin, RotaryStyle style) {
    const int half = width / 2;
    const int step = style == RotaryStyle::kInterleaved ? 2 : 1;
    const int partner = style == RotaryStyle::kInterleaved ? 1 : half;
    for (int i = 0; i < half; ++i) {
        const float cosine = cos_sin[i];
        const float sine = cos_sin[half + i];
        const float a = x[i * step];
        const float b = x[i * step + partner];
        x[i * step] = a * cosine - b * sine;
        x[i * step + partner] = b * cosine + a * sine;
    }
}

class Appender {
public:
    Appender(const core::AppendCall& call, const CacheKernels& kernels)
        : call_(call),
          kernels_(kernels),
          plain_copy_(is_16bit(call.cache.format) && call.latent.dtype == element_type(call.cache.format) &&
                      call.positions.data == nullptr && !core::planted(core::PlantedFault::kRopeHalvesSwapped)) {}

    void run(int thread, int threads) const {
        for (std::int64_t token = 0; token < call_.tokens; ++token) {
            const std::int64_t slot = call_.slots[token];
            if (slot < 0 || (threads > 1 && owner(slot, threads) != thread)) continue;
            const std::int64_t page = core::quotient(slot, call_.cache.page_size);
            const auto parts = core::record_parts(call_.cache, page, slot - page * call_.cache.page_size);
            if (plain_copy_) {
                copy(token, parts.values);
            } else {
                convert(token, parts);
            }
        }
    }

private:
    void copy(std::int64_t token, std::uint8_t* to) const {
        const std::size_t latent_bytes = 2 * static_cast<std::size_t>(call_.latent.width);
        std::memcpy(to, call_.latent.row(token), latent_bytes);
        if (call_.rope.width == 0) return;
        std::memcpy(to + latent_bytes, call_.rope.row(token), 2 * static_cast<std::size_t>(call_.rope.width));
    }

    void convert(std::int64_t token, const core::RecordParts<std::uint8_t>& parts) const {
        float row[core::kMaxRecordValues];
        kernels_.widen(call_.latent.dtype, call_.latent.row(token), call_.latent.width, row);
        if (call_.rope.width > 0) load_rope(token, row + call_.latent.width);
        encode_row(kernels_, call_.cache, call_.power_of_two, row, parts);
    }

    void load_rope(std::int64_t token, float* to) const {
        const int width = call_.rope.width;
        const std::uint8_t* from = call_.rope.row(token);
        if (core::planted(core::PlantedFault::kRopeHalvesSwapped)) {
            const int half = width / 2;
            kernels_.widen(call_.rope.dtype, from, half, to + width - half);
            kernels_.widen(call_.rope.dtype, from + half * size_bytes(call_.rope.dtype), width - half, to);
        } else {
            kernels_.widen(call_.rope.dtype, from, width, to);
        }
        if (call_.positions.data == nullptr) return;
        const std::uint8_t* angles = call_.cos_sin.row(call_.positions[token]);
        rotate(to, width, reinterpret_cast<const float*>(angles), call_.style);
    }

    const core::AppendCall& call_;
    const CacheKernels& kernels_;
    const bool plain_copy_;
};

}  // namespace

Status append(const core::AppendCall& call) {
    const Result<const CacheKernels*> kernels = select_cache_kernels();
    if (!kernels.ok()) return kernels.status();
    const Appender appender(call, *kernels.value());
    const std::int64_t bytes =
        call.tokens * (cache_record_bytes(call.cache.format, call.cache.d_qk) +
                       call.cache.d_qk * static_cast<std::int64_t>(size_bytes(call.latent.dtype)));
    const int threads = threads_for_bytes(bytes, call.max_threads);
    run_on_threads(threads, [&](int thread) { appender.run(thread, threads); });
    return {};
}

}  // namespace flashmla::backends::cpu
