#include "cli/row_check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "cli/exit_codes.hpp"
#include "core/random.hpp"
#include "flashmla/explain.hpp"
#include "reference/compare.hpp"

namespace flashmla::cli {

namespace {

constexpr std::size_t kSampledRequests = 8;

std::vector<std::int64_t> sampled_requests(const bench::Lengths& lengths, std::uint64_t seed) {
    std::vector<std::int64_t> order(lengths.size());
    std::iota(order.begin(), order.end(), std::int64_t{0});
    if (order.size() <= kSampledRequests) return order;
    const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
    std::set<std::int64_t> chosen{shortest - lengths.begin(), longest - lengths.begin()};
    for (std::uint64_t draw = 0; chosen.size() < kSampledRequests; ++draw) {
        chosen.insert(static_cast<std::int64_t>(core::random_below(seed, draw, lengths.size())));
    }
    return {chosen.begin(), chosen.end()};
}

// The oracle is slow and its rows independent: each thread takes every threads-th row.
std::vector<reference::Comparison> compare(const DecodeArgs& args, const std::vector<reference::Row>& rows,
                                           const reference::RoundingModel& model, int threads) {
    std::vector<reference::Comparison> parts(static_cast<std::size_t>(std::max(1, threads)));
    std::vector<std::jthread> helpers;
    for (std::size_t t = 0; t < parts.size(); ++t) {
        helpers.emplace_back([&, t] {
            std::vector<reference::Row> mine;
            for (std::size_t i = t; i < rows.size(); i += parts.size()) mine.push_back(rows[i]);
            parts[t] = reference::compare_rows(args, mine, model);
        });
    }
    helpers.clear();
    return parts;
}

}  // namespace

reference::RoundingModel rounding_model(const DecodePlan& plan) {
    // A dense plan with fixed chunks sums a chunk at a time; the schedule of a sparse one follows from its lists.
    std::int64_t longest_sum = reference::kNoLimit;
    if (plan.shape.topk == 0) {
        const bench::Lengths none(static_cast<std::size_t>(plan.shape.b), 0);
        const ScheduleExplanation schedule = require(explain_schedule(plan, none));
        const std::int64_t chunk = std::int64_t{schedule.chunk_key_tiles} * schedule.key_tile_tokens;
        if (chunk > 0) longest_sum = chunk;
    }
    if (plan.device.device.type == DeviceType::kCuda) {
        reference::RoundingModel model = reference::matrix_unit_model(plan.shape.dtype, longest_sum);
        model.partials = DType::kFloat16;  // of units split over workers, or over chunks (combine/partials.hpp)
        return model;
    }
    return reference::cpu_model(plan.device.arch, plan.shape.dtype, longest_sum, plan.shape.format);
}

RowCheck compare_on_threads(const DecodeArgs& args, const std::vector<reference::Row>& rows,
                            const reference::RoundingModel& model, int threads) {
    RowCheck check;
    for (const reference::Comparison& part : compare(args, rows, model, threads)) {
        check.rows += part.rows;
        check.worst_share = std::max({check.worst_share, part.worst_out_share, part.worst_lse_share});
        check.relative_error = std::max(check.relative_error, part.relative_error);
        if (part.passed || !check.passed) continue;
        check.passed = false;
        check.message = part.message;
    }
    return check;
}

RowCheck check_sample(const DecodeBatch& batch, std::int64_t rows, std::uint64_t seed, int threads) {
    const reference::RoundingModel model = rounding_model(batch.plan());
    const std::vector<std::int64_t> requests = sampled_requests(batch.spec().lengths, seed);
    RowCheck check;
    for (std::size_t i = 0; i < requests.size() && check.rows < rows; ++i) {
        const auto left = static_cast<std::int64_t>(requests.size() - i);
        const HostRequest request = batch.host_request(requests[i]);
        const std::vector<reference::Row> sample =
            reference::sample_rows(request.args, (rows - check.rows + left - 1) / left, seed + i);
        const RowCheck part = compare_on_threads(request.args, sample, model, threads);
        check.rows += part.rows;
        check.worst_share = std::max(check.worst_share, part.worst_share);
        check.relative_error = std::max(check.relative_error, part.relative_error);
        if (part.passed || !check.passed) continue;
        check.passed = false;
        check.message =
            fmt::format("Batch entry {} ({} keys): {}", requests[i], batch.spec().lengths[requests[i]], part.message);
    }
    return check;
}

}  // namespace flashmla::cli
