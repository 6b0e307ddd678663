#include "cli/operations/operation_case.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "cli/exit_codes.hpp"
#include "cli/parallel.hpp"
#include "core/random.hpp"
#include "reference/element.hpp"

namespace flashmla::cli {

using Json = nlohmann::ordered_json;

namespace {

// Adds a row to a check. An infinite bound resolves nothing and fails.
void hold(RowCheck& check, const CheckedRow& row) {
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < row.exact.size(); ++i) {
        const double exact = row.exact[i];
        const double got = row.got[i];
        const bool special = !std::isfinite(exact);
        const double difference = special ? 0 : std::abs(got - exact);
        const bool same = special ? got == exact || (std::isnan(got) && std::isnan(exact))
                                  : std::isfinite(row.bound[i]) && difference <= row.bound[i];
        if (!special && std::isfinite(got)) {
            error += difference * difference;
            norm += exact * exact;
            if (row.bound[i] > 0) check.worst_share = std::max(check.worst_share, difference / row.bound[i]);
        }
        if (same || !check.passed) continue;
        check.passed = false;
        check.message = fmt::format("{} value {}: got {:.9g}, wanted {:.9g} within {:.3g}", row.where, i, got, exact,
                                    special ? 0 : row.bound[i]);
    }
    if (norm > 0) check.relative_error = std::max(check.relative_error, std::sqrt(error / norm));
}

}  // namespace

const std::vector<OperationInfo>& operations() {
    static const std::vector<OperationInfo> all = [] {
        std::vector<OperationInfo> joined;
        for (std::vector<OperationInfo> (*file)() :
             {decode_operations, sparse_prefill_operations, dense_prefill_operations, absorb_operations,
              merge_operations, cache_operations}) {
            for (OperationInfo& operation : file()) joined.push_back(std::move(operation));
        }
        return joined;
    }();
    return all;
}

const OperationInfo& operation_named(const std::string& name) {
    for (const OperationInfo& operation : operations()) {
        if (name == operation.name) return operation;
    }
    throw Failure{kExitBadInput, "operation: got '" + name + "'"};
}

std::string operation_names() {
    std::string names = "decode";
    for (const OperationInfo& operation : operations()) names += std::string(", ") + operation.name;
    return names;
}

void add_operation(CLI::App& command, std::string& operation, const std::string& description) {
    const auto known = [](const std::string& name) -> std::string {
        if (name == "decode") return {};
        for (const OperationInfo& one : operations()) {
            if (name == one.name) return {};
        }
        return "there is no '" + name + "'; there are " + operation_names();
    };
    command.add_option("operation", operation, description)->check(known)->capture_default_str();
}

std::string option_of(const std::string& key) {
    if (key == "h_q") return "--heads";
    if (key == "h_kv") return "--kv-heads";
    if (key == "varlen") return "--ragged";
    std::string option = "--" + key;
    std::replace(option.begin(), option.end(), '_', '-');
    return option;
}

std::string operation_summaries() {
    std::string text =
        "  decode                  dense decode of 16-bit caches, by suites or one case of --b, --lengths, --trace\n";
    for (const OperationInfo& operation : operations()) {
        text += fmt::format("  {:<23} {}\n{:26}", operation.name, operation.summary, "");
        for (const char* key : operation.keys) text += option_of(key) + (key == operation.keys.back() ? "\n" : " ");
    }
    return text;
}

Json shape_facts(const OperationInfo& operation, const CaseShape& shape) {
    const Json all = {{"dtype", name(shape.dtype)}, {"format", name(shape.format)},
                      {"to", name(shape.to)},       {"b", shape.b},
                      {"h_q", shape.heads},         {"h_kv", shape.kv_heads},
                      {"s_q", shape.s_q},           {"len", shape.len},
                      {"topk", shape.topk},         {"parts", shape.parts},
                      {"d_qk", shape.d_qk},         {"d_v", shape.d_v},
                      {"head_dim", shape.head_dim}, {"kv_lora_rank", shape.rank},
                      {"causal", shape.causal},     {"varlen", shape.varlen},
                      {"page", shape.page}};
    Json facts;
    for (const auto& [key, value] : all.items()) {
        const bool wanted = std::any_of(operation.keys.begin(), operation.keys.end(),
                                        [&key = key](const char* known) { return key == known; });
        if (wanted) facts[key] = value;
    }
    return facts;
}

std::string facts_text(const Json& facts) {
    std::string text;
    for (const auto& [key, value] : facts.items()) {
        text += (text.empty() ? "" : ", ") + key + " " + (value.is_string() ? value.get<std::string>() : value.dump());
    }
    return text;
}

std::string shape_text(const OperationInfo& operation, const CaseShape& shape) {
    return facts_text(shape_facts(operation, shape));
}

std::vector<std::int64_t> sampled(std::int64_t total, std::int64_t count, std::uint64_t seed) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(total));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    if (count == 0 || total <= count) return all;
    std::set<std::int64_t> chosen{0, total - 1};
    for (std::uint64_t draw = 0; static_cast<std::int64_t>(chosen.size()) < count; ++draw) {
        chosen.insert(static_cast<std::int64_t>(core::random_below(seed, draw, static_cast<std::uint64_t>(total))));
    }
    return {chosen.begin(), chosen.end()};
}

RowCheck hold_on_threads(const std::vector<std::int64_t>& rows, int threads,
                         const std::function<std::vector<CheckedRow>(std::int64_t row)>& rows_of) {
    std::vector<RowCheck> checks(rows.size());
    parallel_items(static_cast<std::int64_t>(rows.size()), threads, [&](std::int64_t i) {
        for (const CheckedRow& row : rows_of(rows[i])) hold(checks[i], row);
    });
    RowCheck all;
    all.rows = static_cast<std::int64_t>(rows.size());
    for (const RowCheck& check : checks) {
        all.worst_share = std::max(all.worst_share, check.worst_share);
        all.relative_error = std::max(all.relative_error, check.relative_error);
        if (check.passed || !all.passed) continue;
        all.passed = false;
        all.message = check.message;
    }
    return all;
}

std::int64_t Draw::between(std::int64_t low, std::int64_t high) {
    return low +
           static_cast<std::int64_t>(core::random_below(seed_, next_++, static_cast<std::uint64_t>(high - low + 1)));
}

std::vector<std::int32_t> random_order(std::int64_t n, std::uint64_t seed) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    Draw draw(seed);
    for (std::int64_t i = n - 1; i > 0; --i) std::swap(order[i], order[draw.between(0, i)]);
    return order;
}

CaseShape random_rows(std::uint64_t seed, std::int64_t /*max_length*/, std::int64_t max_rows) {
    Draw draw(seed);
    CaseShape shape{.seed = seed};
    shape.heads = draw.one_of<std::int64_t>({1, 2, 3, 16, 63, 128});
    shape.b = draw.between(0, std::max<std::int64_t>(1, max_rows / shape.heads));
    shape.s_q = draw.between(1, 3);
    shape.parts = draw.between(1, 9);
    shape.d_v = draw.one_of<std::int64_t>({512, 256, 128, 576, 72});
    shape.dtype = draw.one_of({DType::kBFloat16, DType::kFloat16, DType::kFloat32});
    return shape;
}

std::vector<double> row_of(const TensorView& view, std::int64_t n, std::int64_t h) {
    std::vector<double> row(static_cast<std::size_t>(view.shape[2]));
    for (std::size_t i = 0; i < row.size(); ++i) {
        row[i] = reference::element(view, {n, h, static_cast<std::int64_t>(i)});
    }
    return row;
}

}  // namespace flashmla::cli
