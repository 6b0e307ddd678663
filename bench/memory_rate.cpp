#include "bench/memory_rate.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "bench/fma_peak.hpp"

namespace flashmla::bench {
namespace {

constexpr std::size_t kWords = std::size_t{1} << 25;  // 256 MiB of 64-bit words

struct Seconds {
    double wall = 0;
    double cpu = 0;  // of all threads
};

// Runs work(begin, end) over [0, words), a share a thread.
template <class Work>
Seconds timed(int threads, const Work& work, std::size_t words = kWords) {
    const double cpu_started = process_cpu_seconds();
    const auto started = std::chrono::steady_clock::now();
    std::vector<std::thread> helpers;
    const auto count = static_cast<std::size_t>(threads);
    for (std::size_t i = 1; i < count; ++i) {
        helpers.emplace_back([&work, i, count, words] { work(words * i / count, words * (i + 1) / count); });
    }
    work(std::size_t{0}, words / count);
    for (std::thread& helper : helpers) helper.join();
    return {std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count(),
            process_cpu_seconds() - cpu_started};
}

std::uint64_t sum(const std::uint64_t* from, std::size_t count) {
    std::uint64_t sums[8] = {};
    for (std::size_t i = 0; i + 8 <= count; i += 8) {
        for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += from[i + lane];
    }
    std::uint64_t total = 0;
    for (const std::uint64_t lane : sums) total += lane;
    return total;
}

// The words from `begin` (or the next) to `end`. `to` is aligned to 16 bytes.
void streamed_copy(std::uint64_t* to, const std::uint64_t* from, std::size_t begin, std::size_t end) {
#if defined(__SSE2__)
    for (std::size_t i = begin + begin % 2; i + 2 <= end; i += 2) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    }
    _mm_sfence();
#else
    std::memcpy(to + begin, from + begin, 8 * (end - begin));
#endif
}

}  // namespace

double MemoryRates::best() const { return std::max({read_gbps, write_gbps, copy_gbps, streamed_copy_gbps}); }

MemoryMeasurement measure_memory(int threads, int samples) {
    std::vector<std::uint64_t> a(kWords, 1);
    std::vector<std::uint64_t> b(kWords, 2);
    volatile std::uint64_t sink = 0;  // keeps the sums
    MemoryMeasurement best;
    const auto note = [&](double MemoryRates::*rate, double bytes, const Seconds& seconds) {
        best.wall.*rate = std::max(best.wall.*rate, bytes / seconds.wall / 1e9);
        best.of_cpu_time.*rate = std::max(best.of_cpu_time.*rate, bytes / seconds.cpu / 1e9);
    };
    const double bytes = 8.0 * static_cast<double>(kWords);
    for (int i = 0; i < samples; ++i) {
        note(&MemoryRates::read_gbps, bytes, timed(threads, [&](std::size_t begin, std::size_t end) {
            if (sum(a.data() + begin, end - begin) == 0) sink = 1;
        }));
        note(&MemoryRates::write_gbps, bytes, timed(threads, [&](std::size_t begin, std::size_t end) {
            std::memset(b.data() + begin, 1 + i % 255, 8 * (end - begin));
        }));
        note(&MemoryRates::copy_gbps, 2 * bytes, timed(threads, [&](std::size_t begin, std::size_t end) {
            std::memcpy(b.data() + begin, a.data() + begin, 8 * (end - begin));
        }));
        note(&MemoryRates::streamed_copy_gbps, 2 * bytes, timed(threads, [&](std::size_t begin, std::size_t end) {
            streamed_copy(b.data(), a.data(), begin, end);
        }));
    }
    return best;
}

StreamedCopy::StreamedCopy() : from_(kWords / 4, 1), to_(kWords / 4, 2) {}

double StreamedCopy::gbps(int threads) {
    const Seconds seconds = timed(
        threads, [&](std::size_t begin, std::size_t end) { streamed_copy(to_.data(), from_.data(), begin, end); },
        from_.size());
    return 16.0 * static_cast<double>(from_.size()) / seconds.wall / 1e9;
}

}  // namespace flashmla::bench
