// Independent items over threads, with a progress bar.
#pragma once

#include <cstdint>
#include <functional>

#include "cli/progress.hpp"

namespace flashmla::cli {

// Calls work(i) once for each i in [0, items), on `threads` threads; the calling one is among them and draws the bar
// when there is one. `work` must not throw.
void parallel_items(std::int64_t items, int threads, const std::function<void(std::int64_t)>& work,
                    ProgressBar* bar = nullptr);

}  // namespace flashmla::cli
