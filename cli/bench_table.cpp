#include "cli/bench_table.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "cli/operations/operation_case.hpp"

namespace flashmla::cli {
namespace {

std::string yes_no(const Json& record, const char* key) { return record[key].get<bool>() ? "yes" : "no"; }

std::string decode_columns(const Json& record) {
    return fmt::format("{:<8} {:>5} {:>4} {:>4} {:>7} {:>7} {:>7}", record["suite"].get<std::string>(),
                       record["b"].get<std::int64_t>(), record["h_q"].get<std::int64_t>(),
                       record["s_q"].get<std::int64_t>(), record["len"].get<std::int64_t>(), yes_no(record, "varlen"),
                       yes_no(record, "causal"));
}

}  // namespace

BenchTable::BenchTable(const BenchOptions& options, const std::vector<BenchCase>& cases) {
    if (options.operation == "decode") {
        columns_ = fmt::format("{:<8} {:>5} {:>4} {:>4} {:>7} {:>7} {:>7}", "suite", "b", "h_q", "s_q", "len", "varlen",
                               "causal");
        return;
    }
    const auto is_shared = [&](const std::string& key, const Json& value) {
        return cases.size() > 1 && std::all_of(cases.begin(), cases.end(),
                                               [&](const BenchCase& other) { return other.facts[key] == value; });
    };
    Json shared = Json::object();
    std::size_t width = 4;
    for (const BenchCase& one : cases) {
        Json own = Json::object();
        for (const auto& [key, value] : one.facts.items()) (is_shared(key, value) ? shared : own)[key] = value;
        cases_.push_back(facts_text(own));
        width = std::max(width, cases_.back().size());
    }
    shared_ = facts_text(shared);
    for (std::string& text : cases_) text.resize(width, ' ');
    columns_ = fmt::format("{:<{}}", "case", width);
}

void BenchTable::print_heading(const BenchOptions& options, const DeviceInfo& device, const Ceilings& ceilings) const {
    fmt::print("{} on {}, {} cache, median of {}; ceilings {:.4g} TFLOPS ({}), {:.4g} GB/s (copy, measured)\n",
               options.operation, device_text(device), options.hot ? "hot" : "cold", options.samples, ceilings.tflops,
               ceilings.tflops_source, ceilings.copy_gbps);
    if (!shared_.empty()) fmt::print("every case: {}\n", shared_);
    fmt::print("{} {:>11} {:>9} {:>9} {:>6} {:>9}\n", columns_, "ms", "TFLOPS", "GB/s", "roof", "rel err");
}

void BenchTable::print_record(std::size_t number, const Json& record) const {
    fmt::print("{} {:>11.4f} {:>9.4g} {:>9.4g} {:>5.1f}% {:>9.2e}{}\n",
               cases_.empty() ? decode_columns(record) : cases_[number], record["ms"].get<double>(),
               record["tflops"].get<double>(), record["gbps"].get<double>(),
               100 * record["share_of_roofline"].get<double>(), record["rel_error"].get<double>(),
               record["passed"].get<bool>() ? "" : "  WRONG");
    std::fflush(stdout);
}

}  // namespace flashmla::cli
