// The cases of `flashmla bench OPERATION`: standard sizes, with the options given put in their place.
#include <algorithm>
#include <memory>

#include "cli/bench_options.hpp"
#include "cli/kv/cache_file.hpp"
#include "cli/operations/operation_case.hpp"
#include "core/kv_record.hpp"

namespace flashmla::cli {
namespace {

bool has_key(const OperationInfo& operation, const std::string& key) {
    return std::any_of(operation.keys.begin(), operation.keys.end(), [&](const char* known) { return key == known; });
}

CaseShape with_options(const OperationInfo& operation, CaseShape shape, const BenchOptions& options) {
    const auto replace = [&](const char* key, auto& field, const auto& value) {
        const std::string option = option_of(key);
        if (!options.given(option)) return;
        if (!has_key(operation, key)) throw Failure{kExitBadInput, option + ": " + operation.name + " has none"};
        field = value;
    };
    replace("format", shape.format, format_named(options.format));
    if (options.given("--format")) {
        // The records of a packed format have one width, and 16-bit caches go with queries of their type.
        if (shape.format == CacheFormat::kFp8_656) shape.d_qk = core::kv656::kDimQk;
        if (shape.format == CacheFormat::kFp8_584) shape.d_qk = core::kv584::kDimQk;
        if (has_key(operation, "h_q") && is_16bit(shape.format)) {
            shape.dtype = shape.format == CacheFormat::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
        }
    }
    replace("b", shape.b, options.b);
    replace("len", shape.len, options.len);
    replace("s_q", shape.s_q, options.batch.s_q);
    replace("h_q", shape.heads, options.batch.heads);
    replace("h_kv", shape.kv_heads, options.kv_heads);
    replace("topk", shape.topk, options.topk);
    replace("parts", shape.parts, options.parts);
    replace("d_qk", shape.d_qk, options.batch.d_qk);
    replace("d_v", shape.d_v, options.batch.d_v);
    replace("page", shape.page, options.batch.page);
    replace("dtype", shape.dtype, options.batch.dtype_value());
    replace("to", shape.to, format_named(options.to));
    replace("head_dim", shape.head_dim, options.head_dim);
    replace("kv_lora_rank", shape.rank, options.kv_lora_rank);
    replace("causal", shape.causal, options.batch.causal);
    replace("varlen", shape.varlen, options.ragged);
    if (options.given("--data-std")) shape.deviation = options.data_std;
    shape.seed = options.batch.seed;
    for (const char* option : {"--suite", "--lengths", "--lengths-file", "--trace", "--requests", "--kernel", "--scale",
                               "--batch-invariant"}) {
        if (options.given(option)) throw Failure{kExitBadInput, std::string(option) + ": of decode alone"};
    }
    if (options.given("--threads") && !operation.planned) {
        throw Failure{kExitBadInput, std::string("--threads: ") + operation.name +
                                         " has no plan to say so and uses all that the process may; taskset limits it"};
    }
    return shape;
}

Json measure(const BenchOptions& options, const OperationInfo& operation, const CaseShape& shape,
             const DeviceInfo& device, const Ceilings& ceilings) {
    const int threads = host_threads(options.batch);
    const std::unique_ptr<DeviceBuffers> buffers = open_device(device, threads);
    const std::unique_ptr<OperationCase> made = operation.make(shape, {device, *buffers, threads});
    const Measurement measured = measure_calls(
        options, *buffers, [&] { return made->run(); }, [&] { return made->check(options.check_rows); });
    Json record = {{"operation", operation.name}, {"case", shape_text(operation, shape)}, {"kernel", made->kernel()}};
    record.update(shape_facts(operation, shape));
    record["data_std"] = shape.deviation;
    record["cache"] = options.hot ? "hot" : "cold";
    record["threads"] = threads;
    add_results(record, measured, {.flops = made->flops(), .bytes = made->bytes()}, ceilings);
    return record;
}

}  // namespace

std::vector<BenchCase> operation_bench_cases(const BenchOptions& options, const DeviceInfo& device) {
    const OperationInfo& operation = operation_named(options.operation);
    std::vector<BenchCase> cases;
    std::vector<std::string> seen;
    for (const CaseShape& standard : operation.bench) {
        const CaseShape shape = with_options(operation, standard, options);
        const std::string text = shape_text(operation, shape);
        if (std::find(seen.begin(), seen.end(), text) != seen.end()) continue;  // options made two sizes the same
        seen.push_back(text);
        cases.push_back(
            {.measure = [=, &operation](
                            const Ceilings& ceilings) { return measure(options, operation, shape, device, ceilings); },
             .facts = shape_facts(operation, shape)});
    }
    return cases;
}

}  // namespace flashmla::cli
