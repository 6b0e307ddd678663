#include "cli/progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace flashmla::cli {

namespace {
constexpr int kWidth = 30;
constexpr std::chrono::milliseconds kInterval{100};
}  // namespace

ProgressBar::ProgressBar(std::string label, bool wanted)
    : label_(std::move(label)), on_(wanted && isatty(STDERR_FILENO) != 0), started_(std::chrono::steady_clock::now()) {}

void ProgressBar::clear() {
    if (drawn_) fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
    drawn_ = false;
}

void ProgressBar::finish() {
    clear();
    on_ = false;
}

void ProgressBar::update(double fraction) {
    const auto now = std::chrono::steady_clock::now();
    if (!on_ || (drawn_ && now - last_ < kInterval)) return;
    const double held = std::clamp(fraction, 0.0, 1.0);
    const int filled = static_cast<int>(held * kWidth);
    const double seconds = std::chrono::duration<double>(now - started_).count();
    fmt::print(stderr, "\r\033[K{} [{:#<{}}{:.<{}}] {:3.0f}% {:.0f} s", label_, "", filled, "", kWidth - filled,
               100 * held, seconds);
    std::fflush(stderr);
    last_ = now;
    drawn_ = true;
}

}  // namespace flashmla::cli
