#include "support/check_decode.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace flashmla::testing_support {

testing::AssertionResult matches_oracle(const reference::DecodeSpec& spec, const DecodeRunner& run,
                                        const reference::RoundingModel& model, std::int64_t oracle_keys) {
    reference::DecodeCase c(spec);
    if (const Status status = run(c.args()); !status.ok()) {
        return testing::AssertionFailure() << describe(spec) << "\n  refused: " << status.message();
    }
    const std::int64_t keys = std::accumulate(spec.lengths.begin(), spec.lengths.end(), std::int64_t{1});
    std::int64_t mean = keys / std::max<std::int64_t>(1, static_cast<std::int64_t>(spec.lengths.size())) + 1;
    if (spec.topk > 0) mean = spec.topk + spec.extra_topk;
    if (!is_16bit(spec.format)) mean *= 10;  // their decoding is what the oracle spends its time with
    const auto comparison = reference::compare_case(c, model, std::max<std::int64_t>(8, oracle_keys / mean));
    if (!comparison.passed) return testing::AssertionFailure() << comparison.message;
    return testing::AssertionSuccess() << describe(spec) << ": worst error over bound " << comparison.worst_out_share
                                       << " (out), " << comparison.worst_lse_share << " (lse)";
}

std::string test_name(const testing::TestParamInfo<reference::DecodeSpec>& info) {
    std::string name = info.param.name;
    for (char& c : name) {
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    }
    return name;
}

}  // namespace flashmla::testing_support
