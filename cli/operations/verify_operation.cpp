#include "cli/operations/verify_operation.hpp"

#include <fmt/core.h>

#include <memory>

#include "cli/progress.hpp"
#include "cli/text.hpp"
#include "core/random.hpp"

namespace flashmla::cli {
namespace {

struct Tally {
    std::int64_t passed = 0, skipped = 0, rows = 0;
    double worst_share = 0;
    std::string worst, skipped_because;
    std::string failed, message;  // the case that failed, and how
    std::int64_t failed_at = -1;
};

// Empty when the case ran; otherwise why nothing here can.
std::string run_case(const OperationInfo& operation, const CaseShape& shape, const CaseDevice& device,
                     RowCheck& check) {
    const std::unique_ptr<OperationCase> made = operation.make(shape, device);
    const Status status = made->run();
    if (status.code() == StatusCode::kUnsupported) return status.message();
    if (!status.ok()) {
        check = {.passed = false, .message = status.message()};
        return {};
    }
    device.buffers.finish();
    check = made->check(0);
    if (const std::string overrun = made->overrun(); check.passed && !overrun.empty()) {
        check.passed = false;
        check.message = overrun;
    }
    return {};
}

std::string repeat_command(const OperationInfo& operation, const OperationVerifyOptions& options, std::int64_t cases) {
    return fmt::format("flashmla verify {} --device {} --seed {} --cases {} --max-length {} --max-rows {}",
                       operation.name, options.batch.device, options.seed, cases, options.max_length, options.max_rows);
}

Json to_json(const OperationInfo& operation, const OperationVerifyOptions& options, const DeviceInfo& device,
             const Tally& tally) {
    Json document = json_header("verify");
    document["operation"] = operation.name;
    document["device"] = device_json(device);
    document["seed"] = options.seed;
    document["cases"] = options.cases;
    document["passed"] = tally.passed;
    document["skipped"] = tally.skipped;
    document["rows"] = tally.rows;
    document["worst_share_of_bound"] = tally.worst_share;
    document["worst_case"] = tally.worst;
    document["failure"] = nullptr;
    if (tally.failed_at >= 0) {
        document["failure"] = {{"case", tally.failed},
                               {"message", tally.message},
                               {"repeat", repeat_command(operation, options, tally.failed_at + 1)}};
    }
    return document;
}

void print_text(const OperationInfo& operation, const OperationVerifyOptions& options, const DeviceInfo& device,
                const Tally& tally) {
    fmt::print("{}: random cases against the double-precision oracle\n", operation.name);
    print_line("device", device_text(device));
    print_line("seed", fmt::format("{} (repeat with --seed {} --cases {})", options.seed, options.seed, options.cases));
    print_line("passed", fmt::format("{}, {} held against the oracle; {} that nothing here takes{}",
                                     count_text(tally.passed, "case"), count_text(tally.rows, "row"),
                                     count_text(tally.skipped, "case"),
                                     tally.skipped > 0 ? ": " + tally.skipped_because : std::string()));
    if (tally.worst_share > 0)
        print_line("closest", fmt::format("{:.3g} of the bound: {}", tally.worst_share, tally.worst));
    if (tally.failed_at < 0) return;
    fmt::print("\nFAIL  case         {}\n", tally.failed);
    fmt::print("      what         {}\n", tally.message);
    fmt::print("      repeat       {}\n", repeat_command(operation, options, tally.failed_at + 1));
}

}  // namespace

ExitCode verify_operation(const OperationInfo& operation, const OperationVerifyOptions& options, bool json) {
    const DeviceInfo device = choose_device(options.batch.device);
    const int threads = host_threads(options.batch);
    Tally tally;
    ProgressBar bar(std::string("verify ") + operation.name, !json);
    for (std::int64_t i = 0; i < options.cases && tally.failed_at < 0; ++i) {
        const std::uint64_t seed = core::random_bits(options.seed, static_cast<std::uint64_t>(i));
        const CaseShape shape = operation.random(seed, options.max_length, options.max_rows);
        const std::unique_ptr<DeviceBuffers> buffers = open_device(device, threads);
        RowCheck check;
        const std::string skipped = run_case(operation, shape, {device, *buffers, threads}, check);
        tally.rows += check.rows;
        if (!skipped.empty()) {
            ++tally.skipped;
            tally.skipped_because = skipped;
        } else if (check.passed) {
            ++tally.passed;
            if (check.worst_share > tally.worst_share) {
                tally.worst_share = check.worst_share;
                tally.worst = shape_text(operation, shape);
            }
        } else {
            tally.failed = shape_text(operation, shape);
            tally.message = check.message;
            tally.failed_at = i;
        }
        bar.update(static_cast<double>(i + 1) / static_cast<double>(options.cases));
    }
    bar.finish();
    if (json) {
        print_json(to_json(operation, options, device, tally));
    } else {
        print_text(operation, options, device, tally);
    }
    return tally.failed_at < 0 ? kExitOk : kExitCheckFailed;
}

}  // namespace flashmla::cli
