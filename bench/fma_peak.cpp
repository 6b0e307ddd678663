// Peak multiply-add rates of the CPU paths: independent chains in registers, enough of them to hide the latency of both
// pipes.
#include "bench/fma_peak.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <thread>
#include <vector>

#include "bench/sampling.hpp"

namespace flashmla::bench {
namespace {

constexpr int kChains = 12;
constexpr std::int64_t kRounds = 1'000'000;  // of kChains multiply-adds: some ms a thread
constexpr int kRepeats = 5;

using Loop = float (*)();

struct Path {
    Loop loop;
    int flops_per_operation;
};

// A chain's value stays near 1 and depends on every step, so that nothing can be left out.
constexpr float kFactor = 0.5F;
constexpr float kTerm = 0.5F;

float portable_loop() {
    typedef float Vector __attribute__((vector_size(16)));
    Vector sum[kChains];
    for (int c = 0; c < kChains; ++c) sum[c] = Vector{1, 1, 1, 1} * static_cast<float>(c);
    const Vector factor = Vector{1, 1, 1, 1} * kFactor;
    const Vector term = Vector{1, 1, 1, 1} * kTerm;
    for (std::int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
        for (int c = 0; c < kChains; ++c) sum[c] = sum[c] * factor + term;
    }
    float total = 0;
    for (int c = 0; c < kChains; ++c) total += sum[c][0];
    return total;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) float avx2_loop() {
    __m256 sum[kChains];
    for (int c = 0; c < kChains; ++c) sum[c] = _mm256_set1_ps(static_cast<float>(c));
    const __m256 factor = _mm256_set1_ps(kFactor);
    const __m256 term = _mm256_set1_ps(kTerm);
    for (std::int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
        for (int c = 0; c < kChains; ++c) sum[c] = _mm256_fmadd_ps(sum[c], factor, term);
    }
    float total = 0;
    for (int c = 0; c < kChains; ++c) total += _mm256_cvtss_f32(sum[c]);
    return total;
}

__attribute__((target("avx512f"))) float avx512_loop() {
    __m512 sum[kChains];
    for (int c = 0; c < kChains; ++c) sum[c] = _mm512_set1_ps(static_cast<float>(c));
    const __m512 factor = _mm512_set1_ps(kFactor);
    const __m512 term = _mm512_set1_ps(kTerm);
    for (std::int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
        for (int c = 0; c < kChains; ++c) sum[c] = _mm512_fmadd_ps(sum[c], factor, term);
    }
    float total = 0;
    for (int c = 0; c < kChains; ++c) total += _mm512_cvtss_f32(sum[c]);
    return total;
}

__attribute__((target("avx512f,avx512bf16"))) float avx512_bf16_loop() {
    __m512 sum[kChains];
    for (int c = 0; c < kChains; ++c) sum[c] = _mm512_set1_ps(static_cast<float>(c));
    const __m512 tiny = _mm512_set1_ps(0x1p-40F);
    const __m512bh a = _mm512_cvtne2ps_pbh(tiny, tiny);
    for (std::int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
        for (int c = 0; c < kChains; ++c) sum[c] = _mm512_dpbf16_ps(sum[c], a, a);
    }
    float total = 0;
    for (int c = 0; c < kChains; ++c) total += _mm512_cvtss_f32(sum[c]);
    return total;
}
#endif

Path path_named([[maybe_unused]] const std::string& name) {
#if defined(__x86_64__)
    if (name == "avx512_bf16") return {avx512_bf16_loop, 64};
    if (name == "avx512") return {avx512_loop, 32};
    if (name == "avx2") return {avx2_loop, 16};
#endif
    return {portable_loop, 8};
}

}  // namespace

double measure_fma_tflops(const std::string& name, int threads) {
    const Path path = path_named(name);
    std::vector<float> results(static_cast<std::size_t>(threads));
    std::vector<double> seconds;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
        const auto started = std::chrono::steady_clock::now();
        {
            std::vector<std::jthread> helpers;
            helpers.reserve(results.size());
            for (float& result : results) helpers.emplace_back([&result, &path] { result = path.loop(); });
        }
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
    }
    const volatile float kept = *std::max_element(results.begin(), results.end());
    (void)kept;
    const double flops = static_cast<double>(kRounds) * kChains * path.flops_per_operation * threads;
    return flops / smallest(seconds) / 1e12;
}

double measure_fma_tflops_of_cpu_time(const std::string& name) {
    const Path path = path_named(name);
    std::vector<double> seconds;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
        const double started = process_cpu_seconds();
        const volatile float kept = path.loop();
        (void)kept;
        seconds.push_back(process_cpu_seconds() - started);
    }
    return static_cast<double>(kRounds) * kChains * path.flops_per_operation / smallest(seconds) / 1e12;
}

double process_cpu_seconds() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace flashmla::bench
