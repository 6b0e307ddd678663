// Numbers and lines as the program prints them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace flashmla::cli {

// 18200 -> "18,200"
std::string grouped(std::int64_t value);
// `digits` after the point, thousands grouped: 4096.0 -> "4,096.0"
std::string grouped(double value, int digits);
// 25,056,000 bytes -> "25.1 MB" (powers of ten)
std::string bytes_text(double bytes);
// 0.0000123 s -> "12.3 us"
std::string time_text(double milliseconds);
// "1 request", "3 requests"
std::string count_text(std::int64_t count, std::string_view noun);

// "  label      text", labels in a column.
void print_line(std::string_view label, std::string_view text);

}  // namespace flashmla::cli
