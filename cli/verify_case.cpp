#include "cli/verify_case.hpp"

#include <algorithm>

#include "cli/row_check.hpp"
#include "flashmla/flashmla.hpp"
#include "reference/compare.hpp"
#include "reference/decode_case.hpp"

namespace flashmla::cli {

namespace {

using reference::DecodeCase;
using reference::DecodeSpec;

// compare_case() begins its message with the spec on a line of its own, which verify prints by itself.
std::string without_spec(const std::string& message) {
    const std::size_t end = message.find("\n  ");
    return end == std::string::npos ? message : message.substr(end + 3);
}

// Copies a case to the device, runs it there, copies the outputs back with their guards.
CaseOutcome run_planned(DecodeCase& made, const DecodePlan& plan, DeviceBuffers& buffers) {
    const auto upload = [&](const auto& values) {
        const std::size_t bytes = values.size() * sizeof(values[0]);
        void* memory = buffers.allocate(bytes);
        buffers.copy_to(memory, values.data(), bytes);
        return memory;
    };
    const reference::CaseBases bases{.q = upload(made.q()),
                                     .pool = upload(made.pool()),
                                     .table = upload(made.table()),
                                     .lengths = upload(made.lengths()),
                                     .out = upload(made.out()),
                                     .lse = upload(made.lse())};
    void* workspace = buffers.allocate(plan.workspace_bytes);
    const DecodeArgs args = made.args_at(bases, plan.device.device);
    if (const Status status = run_decode(plan, args, workspace, plan.workspace_bytes, buffers.stream()); !status.ok()) {
        return {.passed = false, .message = status.message()};
    }
    buffers.finish();
    buffers.copy_back(made.out().data(), bases.out, made.out().size() * sizeof(made.out()[0]));
    buffers.copy_back(made.lse().data(), bases.lse, made.lse().size() * sizeof(made.lse()[0]));
    const reference::Comparison comparison = reference::compare_case(made, rounding_model(plan));
    return {.passed = comparison.passed,
            .message = without_spec(comparison.message),
            .worst_share = std::max(comparison.worst_out_share, comparison.worst_lse_share),
            .rows = comparison.rows};
}

using Change = std::function<void(DecodeSpec&)>;

// From the changes that shrink most to those that only tidy.
std::vector<Change> changes_of(const DecodeSpec& spec) {
    std::vector<Change> changes;
    const std::size_t b = spec.lengths.size();
    if (b > 1) {
        changes.push_back([b](DecodeSpec& s) { s.lengths.resize(b / 2); });
        changes.push_back([b](DecodeSpec& s) { s.lengths.erase(s.lengths.begin(), s.lengths.begin() + b / 2); });
        for (std::size_t i = 0; i < b; ++i) {
            changes.push_back(
                [i](DecodeSpec& s) { s.lengths.erase(s.lengths.begin() + static_cast<std::ptrdiff_t>(i)); });
        }
    }
    const auto reduce = [&changes](std::int64_t value, std::int64_t least,
                                   const std::function<void(DecodeSpec&, std::int64_t)>& set) {
        if (value <= least) return;
        for (const std::int64_t smaller : {least, value / 2, value - 1}) {
            if (smaller >= least && smaller < value)
                changes.push_back([set, smaller](DecodeSpec& s) { set(s, smaller); });
        }
    };
    if (spec.h_kv > 1) {
        changes.push_back([](DecodeSpec& s) {
            s.h_q /= s.h_kv;
            s.h_kv = 1;
        });
    }
    reduce(spec.h_q / spec.h_kv, 1, [](DecodeSpec& s, std::int64_t heads) { s.h_q = heads * s.h_kv; });
    reduce(spec.s_q, 1, [](DecodeSpec& s, std::int64_t tokens) { s.s_q = tokens; });
    for (std::size_t i = 0; i < b; ++i) {
        reduce(spec.lengths[i], 0,
               [i](DecodeSpec& s, std::int64_t length) { s.lengths[i] = static_cast<std::int32_t>(length); });
    }
    changes.push_back([](DecodeSpec& s) { s.causal = false; });
    changes.push_back([](DecodeSpec& s) { s.page_size = 64; });
    changes.push_back([](DecodeSpec& s) {
        s.d_qk = 576;
        s.d_v = 512;
    });
    changes.push_back([](DecodeSpec& s) { s.dtype = DType::kBFloat16; });
    changes.push_back([](DecodeSpec& s) { s.logit_std = 1; });
    changes.push_back([](DecodeSpec& s) {
        s.has_softmax_scale = false;
        s.softmax_scale = 0;
    });
    changes.push_back([](DecodeSpec& s) { s.keys = reference::KeyOrder::kRandom; });
    changes.push_back([](DecodeSpec& s) { s.pages = reference::PageOrder::kSequential; });
    changes.push_back([](DecodeSpec& s) { s.poison = reference::Poison::kZero; });
    changes.push_back([](DecodeSpec& s) { s.cumulative_lengths = false; });
    changes.push_back([](DecodeSpec& s) { s.pool_layers = 1; });
    changes.push_back([](DecodeSpec& s) { s.spare_pages = 0; });
    changes.push_back([](DecodeSpec& s) { s.spare_columns = 0; });
    changes.push_back([](DecodeSpec& s) { s.strided_q = false; });
    changes.push_back([](DecodeSpec& s) { s.strided_out = false; });
    return changes;
}

template <class Enum>
Enum enum_from(const Json& json, const char* key, Enum last) {
    const int value = json.at(key).get<int>();
    if (value < 0 || value > static_cast<int>(last))
        throw Failure{kExitBadInput, std::string("--case: ") + key + " is out of range"};
    return static_cast<Enum>(value);
}

}  // namespace

CaseOutcome run_case(const DecodeSpec& spec, bool batch_invariant, const DeviceInfo& device, int threads) {
    DecodeCase made(spec);
    const DecodeShape shape = require(decode_shape(made.args()));
    const bool cpu = device.device.type == DeviceType::kCpu;
    const Result<DecodePlan> plan = plan_decode(
        shape, device, {.batch_invariant = batch_invariant, .kernel = {}, .num_workers = cpu ? threads : 0});
    if (plan.status().code() == StatusCode::kUnsupported) {
        return {.message = plan.status().message(), .skipped = true};
    }
    require(plan.status());
    const std::unique_ptr<DeviceBuffers> buffers = open_device(device, threads);
    return run_planned(made, plan.value(), *buffers);
}

DecodeSpec shrink(DecodeSpec spec, const std::function<bool(const DecodeSpec&)>& fails, int most_tries) {
    for (bool shrunk = true; shrunk;) {
        shrunk = false;
        for (const Change& change : changes_of(spec)) {
            DecodeSpec smaller = spec;
            change(smaller);
            if (spec_json(smaller) == spec_json(spec)) continue;
            if (most_tries-- <= 0) return spec;
            if (!fails(smaller)) continue;
            spec = std::move(smaller);
            shrunk = true;
            break;
        }
    }
    return spec;
}

Json spec_json(const DecodeSpec& spec) {
    return {{"seed", spec.seed},
            {"dtype", name(spec.dtype)},
            {"lengths", spec.lengths},
            {"s_q", spec.s_q},
            {"h_q", spec.h_q},
            {"h_kv", spec.h_kv},
            {"d_qk", spec.d_qk},
            {"d_v", spec.d_v},
            {"page_size", spec.page_size},
            {"causal", spec.causal},
            {"logit_std", spec.logit_std},
            {"softmax_scale", spec.has_softmax_scale ? Json(spec.softmax_scale) : Json(nullptr)},
            {"keys", static_cast<int>(spec.keys)},
            {"pages", static_cast<int>(spec.pages)},
            {"poison", static_cast<int>(spec.poison)},
            {"cumulative_lengths", spec.cumulative_lengths},
            {"pool_layers", spec.pool_layers},
            {"spare_pages", spec.spare_pages},
            {"spare_columns", spec.spare_columns},
            {"strided_q", spec.strided_q},
            {"strided_out", spec.strided_out}};
}

DecodeSpec spec_from_json(const std::string& text) {
    try {
        const Json json = Json::parse(text);
        DecodeSpec spec;
        spec.name = "given";
        spec.seed = json.at("seed").get<std::uint64_t>();
        const std::string dtype = json.at("dtype").get<std::string>();
        if (dtype != "bfloat16" && dtype != "float16")
            throw Failure{kExitBadInput, "--case: dtype: want bfloat16 or float16"};
        spec.dtype = dtype == "float16" ? DType::kFloat16 : DType::kBFloat16;
        json.at("lengths").get_to(spec.lengths);
        json.at("s_q").get_to(spec.s_q);
        json.at("h_q").get_to(spec.h_q);
        json.at("h_kv").get_to(spec.h_kv);
        json.at("d_qk").get_to(spec.d_qk);
        json.at("d_v").get_to(spec.d_v);
        json.at("page_size").get_to(spec.page_size);
        json.at("causal").get_to(spec.causal);
        json.at("logit_std").get_to(spec.logit_std);
        spec.has_softmax_scale = !json.at("softmax_scale").is_null();
        if (spec.has_softmax_scale) json.at("softmax_scale").get_to(spec.softmax_scale);
        spec.keys = enum_from(json, "keys", reference::KeyOrder::kDominantLast);
        spec.pages = enum_from(json, "pages", reference::PageOrder::kShared);
        spec.poison = enum_from(json, "poison", reference::Poison::kZero);
        json.at("cumulative_lengths").get_to(spec.cumulative_lengths);
        json.at("pool_layers").get_to(spec.pool_layers);
        json.at("spare_pages").get_to(spec.spare_pages);
        json.at("spare_columns").get_to(spec.spare_columns);
        json.at("strided_q").get_to(spec.strided_q);
        json.at("strided_out").get_to(spec.strided_out);
        const std::int64_t shortest =
            spec.lengths.empty() ? 0 : *std::min_element(spec.lengths.begin(), spec.lengths.end());
        if (std::min({spec.s_q, spec.h_q, spec.h_kv, spec.page_size, spec.d_v, spec.d_qk - 1,
                      std::int64_t{spec.pool_layers}}) < 1 ||
            std::min({shortest, std::int64_t{spec.spare_pages}, std::int64_t{spec.spare_columns}}) < 0 ||
            spec.d_v > spec.d_qk || spec.h_q % spec.h_kv != 0) {
            throw Failure{kExitBadInput, "--case: sizes must be positive, d_v <= d_qk, h_q a multiple of h_kv"};
        }
        return spec;
    } catch (const Json::exception& error) {
        throw Failure{kExitBadInput, std::string("--case: not a case as `flashmla verify` prints it: ") + error.what()};
    }
}

}  // namespace flashmla::cli
