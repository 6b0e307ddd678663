// The table that `flashmla bench` prints: a line a case.
#pragma once

#include "cli/bench_options.hpp"

namespace flashmla::cli {

class BenchTable {
public:
    // Decode has columns. Of other operations the facts that all cases share are said once, above the table.
    BenchTable(const BenchOptions& options, const std::vector<BenchCase>& cases);

    void print_heading(const BenchOptions& options, const DeviceInfo& device, const Ceilings& ceilings) const;
    void print_record(std::size_t number, const Json& record) const;

private:
    std::string columns_;             // their heading
    std::string shared_;              // facts of all cases
    std::vector<std::string> cases_;  // of other operations: what tells each from the others
};

}  // namespace flashmla::cli
