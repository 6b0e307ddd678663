#include "bench/lengths.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <numeric>
#include <optional>
#include <sstream>
#include <string_view>

#include "core/random.hpp"

namespace flashmla::bench {

namespace {

constexpr std::int64_t kLongest = std::numeric_limits<std::int32_t>::max();

// A whole number that fills `text` but for blanks around it.
std::optional<std::int64_t> whole_number(std::string_view text) {
    const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
    while (!text.empty() && blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && blank(text.back())) text.remove_suffix(1);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t at = text.find(separator);
        parts.push_back(text.substr(0, at));
        if (at == std::string_view::npos) return parts;
        text.remove_prefix(at + 1);
    }
}

Result<Lengths> to_lengths(const std::vector<std::string_view>& parts, const std::string& source) {
    Lengths lengths;
    for (const std::string_view part : parts) {
        const std::optional<std::int64_t> value = whole_number(part);
        if (!value || *value < 0 || *value > kLongest) {
            return invalid_argument(source + ": got '" + std::string(part) +
                                    "', want whole numbers from 0 to 2147483647");
        }
        lengths.push_back(static_cast<std::int32_t>(*value));
    }
    return lengths;
}

Result<std::string> read_file(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file.is_open() || file.bad()) return invalid_argument(path + ": cannot be read");
    return text.str();
}

}  // namespace

Result<Lengths> parse_lengths(const std::string& text) { return to_lengths(split(text, ','), "lengths"); }

Lengths ragged_lengths(std::int64_t b, std::int64_t mean, std::int64_t s_q, std::uint64_t seed) {
    const core::NormalQuantiles normal;
    Lengths lengths(b);
    for (std::int64_t i = 0; i < b; ++i) {
        const double drawn = static_cast<double>(mean) + 0.5 * static_cast<double>(mean) * normal(seed, i);
        const auto whole = static_cast<std::int64_t>(drawn);
        lengths[i] = static_cast<std::int32_t>(std::max(s_q, std::min(2 * mean, whole)));
    }
    return lengths;
}

Result<Lengths> read_lengths_file(const std::string& path) {
    Result<std::string> text = read_file(path);
    if (!text.ok()) return text.status();
    std::string numbers = text.value();
    for (char& c : numbers) {
        if (c == '[' || c == ']' || c == '\n' || c == '\r' || c == ';' || c == '\t' || c == ' ') c = ',';
    }
    std::vector<std::string_view> parts = split(numbers, ',');
    std::erase_if(parts, [](std::string_view part) { return part.empty(); });
    if (parts.empty()) return invalid_argument(path + ": holds no number");
    return to_lengths(parts, path);
}

Result<std::vector<TraceRequest>> read_trace(const std::string& path) {
    Result<std::string> text = read_file(path);
    if (!text.ok()) return text.status();
    std::istringstream lines(text.value());
    std::string line;
    std::getline(lines, line);
    constexpr std::string_view kColumns[] = {"arrival_ms", "input_tokens", "output_tokens"};
    std::size_t where[3] = {};
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const std::vector<std::string_view> header = split(line, ',');
    for (int column = 0; column < 3; ++column) {
        const auto found = std::find(header.begin(), header.end(), kColumns[column]);
        if (found == header.end()) {
            return invalid_argument(path + ": line 1 names no column '" + std::string(kColumns[column]) +
                                    "'; want arrival_ms,input_tokens,output_tokens");
        }
        where[column] = found - header.begin();
    }
    std::vector<TraceRequest> trace;
    for (std::int64_t number = 2; std::getline(lines, line); ++number) {
        if (line.empty() || line == "\r") continue;
        const std::vector<std::string_view> cells = split(line, ',');
        std::int64_t values[3] = {};
        for (int column = 0; column < 3; ++column) {
            const std::optional<std::int64_t> value =
                where[column] < cells.size() ? whole_number(cells[where[column]]) : std::nullopt;
            if (!value || *value < 0 || *value > kLongest / 2) {
                return invalid_argument(path + ": line " + std::to_string(number) + ", " +
                                        std::string(kColumns[column]) + ": want a whole number from 0 to " +
                                        std::to_string(kLongest / 2));
            }
            values[column] = *value;
        }
        trace.push_back({values[0], values[1], values[2]});
    }
    if (trace.empty()) return invalid_argument(path + ": holds no request");
    return trace;
}

Lengths pick_from_trace(const std::vector<TraceRequest>& trace, std::int64_t requests, std::uint64_t seed) {
    std::vector<std::size_t> order(trace.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::uint64_t output_seed = core::random_bits(seed, 0);
    Lengths lengths;
    for (std::size_t i = 0; i < order.size() && static_cast<std::int64_t>(i) < requests; ++i) {
        std::swap(order[i], order[i + core::random_below(seed, i + 1, order.size() - i)]);
        const TraceRequest& request = trace[order[i]];
        std::int64_t length = request.input_tokens;
        if (request.output_tokens > 0) {
            length += 1 + static_cast<std::int64_t>(core::random_below(output_seed, i, request.output_tokens));
        }
        lengths.push_back(static_cast<std::int32_t>(length));
    }
    return lengths;
}

}  // namespace flashmla::bench
