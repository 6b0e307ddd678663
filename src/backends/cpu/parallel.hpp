// Running one call on several threads, started for it and joined before it returns: nothing to fork over, nothing left
// at exit.
#pragma once

#include <array>
#include <cstdint>
#include <system_error>
#include <thread>

#include "core/host_device.hpp"

namespace flashmla::backends::cpu {

inline constexpr int kMaxParallel = 128;

// Threads worth starting, at most `limit`: each is to have at least `bytes_per_thread` of memory traffic.
inline int threads_for_bytes(std::int64_t bytes, int limit, std::int64_t bytes_per_thread = 1 << 19) {
    const std::int64_t useful = core::max_of<std::int64_t>(1, bytes / bytes_per_thread);
    return static_cast<int>(core::min_of<std::int64_t>(useful, core::min_of(core::max_of(limit, 1), kMaxParallel)));
}

// work(0) to work(threads - 1), each once, `threads` at most kMaxParallel. Those that the system has no thread for are
// done by the caller.
template <class Work>
void run_on_threads(int threads, const Work& work) {
    std::array<std::thread, kMaxParallel> helpers;
    int started = 1;
    try {
        for (; started < threads; ++started) {
            helpers[static_cast<std::size_t>(started)] = std::thread([&work, index = started] { work(index); });
        }
    } catch (const std::system_error&) {
    }
    work(0);
    for (int index = started; index < threads; ++index) work(index);
    for (std::thread& helper : helpers) {
        if (helper.joinable()) helper.join();
    }
}

// Part `index` of [0, count) cut into `parts` ranges that differ by at most one.
struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

inline Range even_share(std::int64_t count, int parts, int index) {
    const std::int64_t size = count / parts;
    const std::int64_t larger = count % parts;
    const std::int64_t begin = index * size + core::min_of<std::int64_t>(index, larger);
    return {begin, begin + size + (index < larger ? 1 : 0)};
}

}  // namespace flashmla::backends::cpu
