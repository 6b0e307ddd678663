// A progress bar on the terminal: drawn on stderr, only when that is a terminal, and gone when the work is done.
#pragma once

#include <chrono>
#include <string>

namespace flashmla::cli {

class ProgressBar {
public:
    ProgressBar(std::string label, bool wanted);
    ~ProgressBar() { finish(); }
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    // Draws at most ten times a second.
    void update(double fraction);

    // Clears the line, for a line of results; the next update draws again.
    void clear();
    // Clears the line for good; the destructor does too.
    void finish();

private:
    std::string label_;
    bool on_;
    bool drawn_ = false;
    std::chrono::steady_clock::time_point started_;
    std::chrono::steady_clock::time_point last_;
};

}  // namespace flashmla::cli
