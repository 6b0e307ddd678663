// The cache operations against the memory of the machine.
//
// usage: bench_cpu_cache [OUTPUT.json [SAMPLES]]. FLASHMLA_CPU_ISA chooses the path.
//
// Every call works on tokens and pages that no call before it touched, in memory several times the size of the caches:
// inputs come from DRAM and results go there. The rate counts the bytes that must move: inputs read once, results
// written once. Lines that are read only because they are about to be written are traffic but no bytes of the rate. It
// is compared with a streamed copy, in turns with every call, and with the best that plain loops over large buffers
// reach in the same minute, on one core and on all of them.
#include <sched.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "bench/cpu_receipt.hpp"
#include "bench/memory_rate.hpp"
#include "core/random.hpp"

namespace flashmla::bench {
namespace {

constexpr std::int64_t kPageSize = 64;
constexpr double kScale = 4.4 / 448;  // fp8_flat: the largest magnitude of the data, 4.33, at the top of e4m3
constexpr std::int64_t kWorkingSet = std::int64_t{384} << 20;  // bytes of inputs and cache that the calls walk through

std::uint16_t bf16_code(float value) {
    std::uint32_t bits = 0;
    static_assert(sizeof(bits) == sizeof(value));
    __builtin_memcpy(&bits, &value, sizeof(bits));
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

std::int64_t d_qk_of(CacheFormat format) { return format == CacheFormat::kFp8_584 ? 512 : 576; }

DType dtype_of(CacheFormat format) {
    if (format == CacheFormat::kBFloat16) return DType::kBFloat16;
    return format == CacheFormat::kFloat16 ? DType::kFloat16 : DType::kFloat8E4m3;
}

// A pool of pages in `bytes`, one page right after the other.
TensorView pool_view(std::vector<std::uint8_t>& bytes, CacheFormat format, std::int64_t d_qk, std::int64_t pages) {
    const std::int64_t page_bytes = cache_page_bytes(format, d_qk, kPageSize);
    bytes.resize(static_cast<std::size_t>(pages * page_bytes));
    const auto element = static_cast<std::int64_t>(size_bytes(dtype_of(format)));
    TensorView view = contiguous_view(bytes.data(), dtype_of(format),
                                      {pages, kPageSize, 1, cache_record_bytes(format, d_qk) / element});
    view.stride[0] = page_bytes / element;
    return view;
}

std::vector<std::uint16_t> normal_rows(std::int64_t count) {
    const core::NormalQuantiles normal;
    std::vector<std::uint16_t> codes(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = bf16_code(normal(1, i));
    return codes;
}

// Whether the tokens at `slots` read as the bf16 rows they were made of, within what e4m3 costs (2.7% on these data).
bool reads_back(const TensorView& cache, const TensorView& slots, const std::uint16_t* rows, double scale) {
    const std::int64_t d_qk = cache.shape[3] == 656 ? 576 : cache.shape[3] == 584 ? 512 : cache.shape[3];
    std::vector<float> out(static_cast<std::size_t>(slots.shape[0] * d_qk));
    exit_unless_ok(gather({.cache = cache,
                           .d_qk = d_qk,
                           .slot_ids = slots,
                           .out = contiguous_view(out.data(), DType::kFloat32, {slots.shape[0], d_qk}),
                           .cache_scale = scale}));
    double squares = 0;
    double error_squares = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::uint32_t bits = std::uint32_t{rows[i]} << 16;
        float value = 0;
        std::memcpy(&value, &bits, sizeof(value));
        squares += double{value} * double{value};
        error_squares += (double{out[i]} - double{value}) * (double{out[i]} - double{value});
    }
    return error_squares < 0.03 * 0.03 * squares;
}

struct Times {
    std::vector<double> wall_ms;
    std::vector<double> cpu_ms;     // of all threads
    std::vector<double> copy_gbps;  // of a streamed copy right before
};

// Cores that the calls may use, and what memory gives them.
struct Machine {
    int threads = 1;
    MemoryMeasurement memory;
};

// Times of calls to run(step), after one that is not counted.
template <class Run>
Times walk(const Machine& machine, int samples, std::int64_t steps, const Run& run) {
    Times times;
    StreamedCopy copy;
    for (std::int64_t step = 0; step <= samples; ++step) {
        const double copy_gbps = copy.gbps(machine.threads);
        const double cpu_started = process_cpu_seconds();
        const auto started = std::chrono::steady_clock::now();
        exit_unless_ok(run(step % steps));
        const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - started;
        if (step == 0) continue;
        times.wall_ms.push_back(wall.count());
        times.cpu_ms.push_back(1e3 * (process_cpu_seconds() - cpu_started));
        times.copy_gbps.push_back(copy_gbps);
    }
    return times;
}

struct Moved {
    double read_bytes = 0;
    double written_bytes = 0;
};

struct Work {
    const char* operation = "";
    CacheFormat format = CacheFormat::kBFloat16;
    std::int64_t tokens = 0;  // a call
    Moved moved;
    bool passed = false;
};

Json record_of(const Work& work, const Times& times, const Machine& machine) {
    const MemoryMeasurement& memory = machine.memory;
    const Moved& moved = work.moved;
    const double all = moved.read_bytes + moved.written_bytes;
    const double ms = median(times.wall_ms);
    const double gbps = all / ms / 1e6;
    const double written_gbps = moved.written_bytes / ms / 1e6;
    std::vector<double> shares;
    for (std::size_t i = 0; i < times.wall_ms.size(); ++i) {
        shares.push_back(all / times.wall_ms[i] / 1e6 / times.copy_gbps[i]);
    }
    const double share_of_cpu_time = all / median(times.cpu_ms) / 1e6 / memory.of_cpu_time.best();
    Json record = {{"operation", work.operation},
                   {"format", name(work.format)},
                   {"tokens", work.tokens},
                   {"page", kPageSize},
                   {"threads", machine.threads},
                   {"ms_min", smallest(times.wall_ms)},
                   {"ms_median", ms},
                   {"gbps_median", gbps},
                   {"streamed_copy_gbps_median", median(times.copy_gbps)},
                   {"share_of_streamed_copy_median", median(shares)},
                   {"share_of_memory_rate_median", gbps / memory.wall.best()},
                   {"share_of_memory_rate_max", all / smallest(times.wall_ms) / 1e6 / memory.wall.best()},
                   {"share_of_memory_rate_by_cpu_time_median", share_of_cpu_time},
                   {"written_gbps_median", written_gbps},
                   {"written_share_of_write_rate_median", written_gbps / memory.wall.write_gbps},
                   {"passed", work.passed}};
    std::printf(
        "%-8s %-8s %6ld tokens, %d threads: median %8.3f ms, %6.2f GB/s, %5.1f%% of a streamed copy in turns, %5.1f%% "
        "of the best memory rate (best %5.1f%%), %5.1f%% by CPU time%s\n",
        work.operation, name(work.format), static_cast<long>(work.tokens), machine.threads, ms, gbps,
        100 * median(shares), 100 * gbps / memory.wall.best(),
        100 * all / smallest(times.wall_ms) / 1e6 / memory.wall.best(), 100 * share_of_cpu_time,
        work.passed ? "" : "  WRONG");
    std::fflush(stdout);
    return record;
}

// append and gather of `tokens` tokens a call, pages in shuffled order.
void measure_rows(CacheFormat format, std::int64_t tokens, int samples, const Machine& machine, Json& records) {
    const std::int64_t d_qk = d_qk_of(format);
    const std::int64_t record = cache_record_bytes(format, d_qk);
    const std::int64_t steps = std::max<std::int64_t>(1, kWorkingSet / (tokens * (record + 2 * d_qk)));
    const std::int64_t pages_a_step = (tokens + kPageSize - 1) / kPageSize;
    const std::int64_t pages = steps * pages_a_step;
    std::vector<std::uint8_t> bytes;
    const TensorView cache = pool_view(bytes, format, d_qk, pages);
    std::vector<std::uint16_t> rows = normal_rows(steps * tokens * d_qk);
    std::vector<std::int64_t> order(static_cast<std::size_t>(pages));
    for (std::size_t i = 0; i < order.size(); ++i) {
        const std::size_t other = core::random_below(2, i, i + 1);
        order[i] = order[other];
        order[other] = static_cast<std::int64_t>(i);
    }
    std::vector<std::int64_t> slots(static_cast<std::size_t>(steps * tokens));
    for (std::int64_t i = 0; i < steps * tokens; ++i) {
        const std::int64_t step = i / tokens;
        const std::int64_t page = order[step * pages_a_step + i % tokens / kPageSize];
        slots[i] = page * kPageSize + i % tokens % kPageSize;
    }
    const auto rows_of = [&](std::int64_t step) {
        return contiguous_view(rows.data() + step * tokens * d_qk, DType::kBFloat16, {tokens, d_qk});
    };
    const auto slots_of = [&](std::int64_t step) {
        return contiguous_view(slots.data() + step * tokens, DType::kInt64, {tokens});
    };
    const auto wide = static_cast<double>(2 * d_qk * tokens);
    const auto packed = static_cast<double>(record * tokens);
    const Times append_times = walk(machine, samples, steps, [&](std::int64_t step) {
        AppendArgs args;
        args.latent = args.rope = rows_of(step);
        args.latent.shape[1] = d_qk - 64;
        args.rope.shape[1] = 64;
        args.rope.data = static_cast<std::uint16_t*>(args.rope.data) + d_qk - 64;
        args.cache = cache;
        args.slot_ids = slots_of(step);
        args.cache_scale = kScale;
        return append(args);
    });
    const bool passed = reads_back(cache, slots_of(0), rows.data(), kScale);
    records.push_back(record_of({"append", format, tokens, {wide, packed}, passed}, append_times, machine));
    const Times gather_times = walk(machine, samples, steps, [&](std::int64_t step) {
        GatherArgs args;
        args.cache = cache;
        args.d_qk = d_qk;
        args.slot_ids = slots_of(step);
        args.out = rows_of(step);
        args.cache_scale = kScale;
        return gather(args);
    });
    records.push_back(record_of({"gather", format, tokens, {packed, wide}, passed}, gather_times, machine));
}

// bf16 pages to the format.
void measure_convert(CacheFormat format, int samples, const Machine& machine, Json& records) {
    const std::int64_t d_qk = d_qk_of(format);
    const std::int64_t pages = 512;
    const std::int64_t tokens = pages * kPageSize;
    std::vector<std::uint8_t> source_bytes;
    std::vector<std::uint8_t> packed_bytes;
    ConvertArgs args{.source = pool_view(source_bytes, CacheFormat::kBFloat16, d_qk, pages),
                     .destination = pool_view(packed_bytes, format, d_qk, pages),
                     .d_qk = d_qk};
    const std::vector<std::uint16_t> rows = normal_rows(tokens * d_qk);
    std::memcpy(source_bytes.data(), rows.data(), 2 * rows.size());
    args.destination_scale = kScale;
    const Times times = walk(machine, samples, 1, [&](std::int64_t) { return convert(args); });
    const auto wide = static_cast<double>(2 * d_qk * tokens);
    const auto packed = static_cast<double>(cache_record_bytes(format, d_qk) * tokens);
    std::vector<std::int64_t> slots(4096);
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<std::int64_t>(i);
    const bool passed =
        reads_back(args.destination, contiguous_view(slots.data(), DType::kInt64, {4096}), rows.data(), kScale);
    records.push_back(record_of({"convert", format, tokens, {wide, packed}, passed}, times, machine));
}

// Only the core that this thread is on, or all that it had. The library starts no more threads than there are cores.
class Cores {
public:
    Cores() { sched_getaffinity(0, sizeof(all_), &all_); }
    void use_one() const {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        sched_setaffinity(0, sizeof(one), &one);
    }
    void use_all() const { sched_setaffinity(0, sizeof(all_), &all_); }

private:
    cpu_set_t all_;
};

Json rates_json(const MemoryRates& rates) {
    return {{"read", rates.read_gbps},
            {"write", rates.write_gbps},
            {"copy", rates.copy_gbps},
            {"streamed_copy", rates.streamed_copy_gbps}};
}

// Every operation on as many threads as this thread has cores.
Json measure_machine(int threads, int samples, Json& records) {
    const Machine machine{threads, measure_memory(threads, samples)};
    const MemoryRates& wall = machine.memory.wall;
    std::printf("memory, %d threads: read %.2f, write %.2f, copy %.2f, streamed copy %.2f GB/s by wall clock\n",
                threads, wall.read_gbps, wall.write_gbps, wall.copy_gbps, wall.streamed_copy_gbps);
    for (const CacheFormat format : kAllCacheFormats) {
        for (const std::int64_t tokens : {std::int64_t{64}, std::int64_t{8192}, std::int64_t{65536}}) {
            measure_rows(format, tokens, samples, machine, records);
        }
        measure_convert(format, samples, machine, records);
    }
    return {{"threads", threads},
            {"gbps_by_wall", rates_json(wall)},
            {"gbps_of_a_core_by_cpu_time", rates_json(machine.memory.of_cpu_time)}};
}

int run(const char* output, int samples) {
    const Result<DeviceInfo> device = query_device({});
    exit_unless_ok(device.status());
    Json document = receipt_head("bench_cpu_cache", device.value());
    document["method"] = {
        {"samples", samples},
        {"cache", "cold: every call on rows and pages that lie outside the caches"},
        {"inputs", "bf16 rows, standard normal; pages in shuffled order"},
        {"rate",
         "bytes read once plus bytes written once, without lines that are read because they are about to be written; "
         "streamed copy = 64 MiB copied past the caches by as many threads right before each call, share = median of "
         "the calls' shares; memory rate = best of reading, memset, memcpy and a copy past the caches over 256 MiB"}};
    const int threads = device.value().num_processors;
    Json records = Json::array();
    Json memory = Json::array();
    const Cores cores;
    if (threads > 1) {
        cores.use_one();
        memory.push_back(measure_machine(1, samples, records));
        cores.use_all();
    }
    memory.push_back(measure_machine(threads, samples, records));
    document["memory"] = memory;
    document["records"] = records;
    return finish_receipt(output, document);
}

}  // namespace
}  // namespace flashmla::bench

int main(int argc, char** argv) {
    return flashmla::bench::run(argc > 1 ? argv[1] : nullptr, argc > 2 ? std::atoi(argv[2]) : 15);
}
