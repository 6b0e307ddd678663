#include "cli/text.hpp"

#include <fmt/core.h>

namespace flashmla::cli {

namespace {

void insert_commas(std::string& digits, std::size_t end) {
    const std::size_t begin = !digits.empty() && digits[0] == '-' ? 1 : 0;
    for (std::size_t at = end; at > begin + 3; at -= 3) digits.insert(at - 3, ",");
}

}  // namespace

std::string grouped(std::int64_t value) {
    std::string text = std::to_string(value);
    insert_commas(text, text.size());
    return text;
}

std::string grouped(double value, int digits) {
    std::string text = fmt::format("{:.{}f}", value, digits);
    const std::size_t point = text.find('.');
    insert_commas(text, point == std::string::npos ? text.size() : point);
    return text;
}

std::string bytes_text(double bytes) {
    constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
    int unit = 0;
    while (bytes >= 1000 && unit < 4) {
        bytes /= 1000;
        ++unit;
    }
    return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.3g} {}", bytes, kUnits[unit]);
}

std::string time_text(double milliseconds) {
    if (milliseconds >= 1000) return fmt::format("{:.4g} s", milliseconds / 1000);
    if (milliseconds >= 1) return fmt::format("{:.4g} ms", milliseconds);
    return fmt::format("{:.4g} us", milliseconds * 1000);
}

std::string count_text(std::int64_t count, std::string_view noun) {
    return fmt::format("{} {}{}", grouped(count), noun, count == 1 ? "" : "s");
}

void print_line(std::string_view label, std::string_view text) { fmt::print("  {:<11} {}\n", label, text); }

}  // namespace flashmla::cli
