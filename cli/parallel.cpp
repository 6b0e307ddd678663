#include "cli/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace flashmla::cli {

void parallel_items(std::int64_t items, int threads, const std::function<void(std::int64_t)>& work, ProgressBar* bar) {
    std::atomic<std::int64_t> next{0};
    const auto take = [&](ProgressBar* shown) {
        for (std::int64_t i = next++; i < items; i = next++) {
            work(i);
            if (shown != nullptr) shown->update(static_cast<double>(i + 1) / static_cast<double>(items));
        }
    };
    std::vector<std::jthread> helpers;
    for (std::int64_t t = 1; t < std::min<std::int64_t>(threads, items); ++t) {
        helpers.emplace_back([&take] { take(nullptr); });
    }
    take(bar);
}

}  // namespace flashmla::cli
