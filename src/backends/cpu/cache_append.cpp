// New tokens into their slots. A slot belongs to one thread, which takes its tokens in order: of two tokens for one
// slot the last one stays, whatever the number of threads.
#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/cache_rows.hpp"
#include "backends/cpu/parallel.hpp"
#include "core/planted_fault.hpp"

namespace flashmla::backends::cpu {
namespace {

// Slots that go to one thread together, so that neighbors in memory mostly have the same writer.
constexpr std::int64_t kRun = 16;

// Tokens put together before they are streamed out. Four records of any format are whole cache lines (of packed ones:
// 41 or 36), and with the rows of the next four they fit into the smallest first-level cache.
constexpr std::int64_t kStep = 4;

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
        : call_(call), kernels_(kernels), encoder_(kernels, call.cache, call.power_of_two) {}

    void run(int thread, int threads, std::int64_t bytes_of_call) const {
        const Writer writer(bytes_of_call);
        const RecordStage stage(call_.cache);
        const Share share{thread, threads, core::min_of(kStep, stage.capacity())};
        Step step = next_step(0, share);
        while (step.count > 0) {
            const Step following = next_step(step.token + step.count, share);
            if (writer.streams()) {
                for (std::int64_t i = 0; i < step.count; ++i) {
                    if (i < following.count) prefetch(following.token + i);
                    encode(step.token + i, stage.parts(i));
                }
                stage.write(call_.cache, step.to, step.count, writer);
            } else {
                for (std::int64_t i = 0; i < step.count; ++i) {
                    encode(step.token + i, core::record_parts(call_.cache, step.to.page, step.to.begin + i));
                }
            }
            step = following;
        }
    }

private:
    // What one thread does.
    struct Share {
        int thread = 0;
        int threads = 1;
        std::int64_t longest_step = 1;
    };

    // Tokens for slots one after the other of one page and one owner.
    struct Step {
        std::int64_t token = 0;
        std::int64_t count = 0;  // 0: the share is done
        PageTokens to;
    };

    // The next one of the share, from `token` on.
    Step next_step(std::int64_t token, const Share& share) const {
        const std::int64_t page_size = call_.cache.page_size;
        for (; token < call_.tokens; ++token) {
            const std::int64_t slot = call_.slots[token];
            if (slot < 0 || (share.threads > 1 && owner(slot, share.threads) != share.thread)) continue;
            const std::int64_t page = core::quotient(slot, page_size);
            const std::int64_t begin = slot - page * page_size;
            std::int64_t end = core::min_of(share.longest_step, page_size - begin);
            end = core::min_of(core::min_of(end, kRun - slot % kRun), call_.tokens - token);
            std::int64_t count = 1;
            while (count < end && call_.slots[token + count] == slot + count) ++count;
            return {token, count, {page, begin}};
        }
        return {};
    }

    void prefetch(std::int64_t token) const {
        prefetch_row(call_.latent, token);
        prefetch_row(call_.rope, token);
    }

    static void prefetch_row(const core::RowsView& rows, std::int64_t token) {
        const std::int64_t bytes = rows.width * static_cast<std::int64_t>(size_bytes(rows.dtype));
        prefetch_lines(rows.row(token), bytes);
    }

    void encode(std::int64_t token, const core::RecordParts<std::uint8_t>& parts) const {
        TokenValues values{.latent = {call_.latent.dtype, call_.latent.row(token), call_.latent.width},
                           .rope = {call_.rope.dtype, nullptr, call_.rope.width}};
        float rope[core::kMaxRecordValues];
        if (values.rope.width > 0) values.rope.data = call_.rope.row(token);
        if (values.rope.width > 0 &&
            (call_.positions.data != nullptr || core::planted(core::PlantedFault::kRopeHalvesSwapped))) {
            load_rope(token, rope);
            values.rope = {DType::kFloat32, reinterpret_cast<const std::uint8_t*>(rope), call_.rope.width};
        }
        encoder_.encode(values, parts);
    }

    void load_rope(std::int64_t token, float* to) const {
        const int width = call_.rope.width;
        const std::uint8_t* from = call_.rope.row(token);
        const auto widen = [this](const std::uint8_t* values, int count, float* floats) {
            kernels_.cast(call_.rope.dtype, values, count, DType::kFloat32, reinterpret_cast<std::uint8_t*>(floats));
        };
        if (core::planted(core::PlantedFault::kRopeHalvesSwapped)) {
            const int half = width / 2;
            widen(from, half, to + width - half);
            widen(from + half * size_bytes(call_.rope.dtype), width - half, to);
        } else {
            widen(from, width, to);
        }
        if (call_.positions.data == nullptr) return;
        const std::uint8_t* angles = call_.cos_sin.row(call_.positions[token]);
        rotate(to, width, reinterpret_cast<const float*>(angles), call_.style);
    }

    const core::AppendCall& call_;
    const CacheKernels& kernels_;
    const TokenEncoder encoder_;
};

}  // namespace

Status append(const core::AppendCall& call) {
    const Result<const CacheKernels*> kernels = select_cache_kernels();
    if (!kernels.ok()) return kernels.status();
    const Appender appender(call, *kernels.value());
    const std::int64_t written = call.tokens * cache_record_bytes(call.cache.format, call.cache.d_qk);
    const std::int64_t read = call.tokens * call.cache.d_qk * static_cast<std::int64_t>(size_bytes(call.latent.dtype));
    const int threads = threads_for_bytes(written + read, call.max_threads);
    run_on_threads(threads, [&](int thread) { appender.run(thread, threads, written); });
    return {};
}

}  // namespace flashmla::backends::cpu
