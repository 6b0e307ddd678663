// `flashmla verify`: random hard cases against the oracle; a failure is shown as the smallest case that fails too.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>

#include "cli/batch_options.hpp"
#include "cli/command.hpp"
#include "cli/operations/verify_operation.hpp"
#include "cli/progress.hpp"
#include "cli/text.hpp"
#include "cli/verify_case.hpp"
#include "core/random.hpp"

namespace flashmla::cli {
namespace {

constexpr int kMostShrinkTries = 400;

struct VerifyOptions {
    std::string operation = "decode";
    std::int64_t cases = 200;
    std::uint64_t seed = 0;
    bool seed_given = false;
    int max_length = 5000;  // past two chunks of the CPU kernel, so that partial results are merged
    int max_rows = 64;
    std::string one_case;
    bool batch_invariant = false;
    BatchOptions batch;  // device and threads
};

struct Tally {
    std::int64_t passed = 0, skipped = 0, rows = 0;
    double worst_share = 0;
    std::string worst;
};

struct Found {
    reference::DecodeSpec original, smallest;
    bool batch_invariant = false;
    std::string message;  // of the smallest
};

// A seed's low bit of a second stream decides the mode, so that a case is a function of its seed alone.
bool wants_invariant(const VerifyOptions& options, std::uint64_t seed) {
    return options.batch_invariant || (core::random_bits(seed, 1) & 1) != 0;
}

Found shrink_failure(const VerifyOptions& options, const reference::DecodeSpec& spec, bool invariant,
                     const DeviceInfo& device, int threads) {
    const auto failing = [&](const reference::DecodeSpec& candidate) {
        const CaseOutcome outcome = run_case(candidate, invariant, device, threads);
        return !outcome.skipped && !outcome.passed;
    };
    Found found{.original = spec, .smallest = spec, .batch_invariant = invariant, .message = {}};
    if (options.one_case.empty()) found.smallest = shrink(spec, failing, kMostShrinkTries);
    found.message = run_case(found.smallest, invariant, device, threads).message;
    return found;
}

std::string repeat_command(const VerifyOptions& options, const Found& found) {
    return fmt::format("flashmla verify --device {}{} --case '{}'", options.batch.device,
                       found.batch_invariant ? " --batch-invariant" : "", spec_json(found.smallest).dump());
}

Json to_json(const VerifyOptions& options, const DeviceInfo& device, const Tally& tally, const Found* found) {
    Json document = json_header("verify");
    document["device"] = device_json(device);
    document["seed"] = options.seed;
    document["cases"] = options.cases;
    document["passed"] = tally.passed;
    document["skipped"] = tally.skipped;
    document["rows"] = tally.rows;
    document["worst_share_of_bound"] = tally.worst_share;
    document["worst_case"] = tally.worst;
    document["failure"] = nullptr;
    if (found != nullptr) {
        document["failure"] = {{"original", spec_json(found->original)},
                               {"smallest", spec_json(found->smallest)},
                               {"batch_invariant", found->batch_invariant},
                               {"message", found->message},
                               {"repeat", repeat_command(options, *found)}};
    }
    return document;
}

void print_text(const VerifyOptions& options, const DeviceInfo& device, const Tally& tally, const Found* found) {
    fmt::print("Hard cases against the double-precision oracle\n");
    print_line("device", device_text(device));
    print_line("seed", fmt::format("{} (repeat with --seed {} --cases {})", options.seed, options.seed, options.cases));
    print_line("passed", fmt::format("{}, {} held against the oracle; {} that no kernel of this device takes",
                                     count_text(tally.passed, "case"), count_text(tally.rows, "row"),
                                     count_text(tally.skipped, "case")));
    if (!tally.worst.empty()) {
        print_line("closest", fmt::format("{:.3g} of the bound: {}", tally.worst_share, tally.worst));
    }
    if (found == nullptr) return;
    fmt::print("\nFAIL  found with   {}\n", reference::describe(found->original));
    fmt::print("      smallest     {}\n", reference::describe(found->smallest));
    fmt::print("      what         {}\n", found->message);
    fmt::print("      repeat       {}\n", repeat_command(options, *found));
}

ExitCode verify(VerifyOptions options, bool json) {
    const DeviceInfo device = choose_device(options.batch.device);
    const int threads = host_threads(options.batch);
    if (!options.seed_given) options.seed = std::random_device{}();
    if (options.operation != "decode") {
        if (!options.one_case.empty()) throw Failure{kExitBadInput, "--case: of decode alone"};
        if (options.batch_invariant) throw Failure{kExitBadInput, "--batch-invariant: of decode alone"};
        return verify_operation(operation_named(options.operation),
                                {.cases = options.cases,
                                 .seed = options.seed,
                                 .max_length = options.max_length,
                                 .max_rows = options.max_rows,
                                 .batch = options.batch},
                                json);
    }
    if (!options.one_case.empty()) options.cases = 1;

    Tally tally;
    std::unique_ptr<Found> found;
    ProgressBar bar("verify", !json);
    for (std::int64_t i = 0; i < options.cases && found == nullptr; ++i) {
        const std::uint64_t seed = core::random_bits(options.seed, i);
        const reference::DecodeSpec spec = options.one_case.empty()
                                               ? reference::random_spec(seed, options.max_length, options.max_rows)
                                               : spec_from_json(options.one_case);
        const bool invariant = options.one_case.empty() ? wants_invariant(options, seed) : options.batch_invariant;
        const CaseOutcome outcome = run_case(spec, invariant, device, threads);
        tally.rows += outcome.rows;
        if (outcome.skipped) {
            ++tally.skipped;
        } else if (outcome.passed) {
            ++tally.passed;
            if (outcome.worst_share > tally.worst_share) {
                tally.worst_share = outcome.worst_share;
                tally.worst = reference::describe(spec);
            }
        } else {
            found = std::make_unique<Found>(shrink_failure(options, spec, invariant, device, threads));
        }
        bar.update(static_cast<double>(i + 1) / static_cast<double>(options.cases));
    }
    bar.finish();
    if (json) {
        print_json(to_json(options, device, tally, found.get()));
    } else {
        print_text(options, device, tally, found.get());
    }
    return found == nullptr ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_verify(CLI::App& app, Selected& selected) {
    CLI::App* command = add_command(
        app, selected, "verify", "Hold random hard cases against a double-precision oracle",
        {"flashmla verify", "flashmla verify --cases 2000 --seed 7",
         "flashmla verify --device cuda:0 --max-length 20000 --max-rows 256", "flashmla verify append --cases 500",
         "flashmla verify dense_prefill_backward --seed 7 --threads 1"});
    auto options = std::make_shared<VerifyOptions>();
    add_operation(*command, options->operation, "What to verify: " + operation_names());
    command->add_option("--cases", options->cases, "Random cases; the first that fails ends it")
        ->check(CLI::Range(1, 2147483647))
        ->capture_default_str();
    CLI::Option* seed =
        command->add_option("--seed", options->seed, "Seed of the cases [a new one each time, printed]");
    command
        ->add_option("--max-length", options->max_length,
                     "Longest request; operations with a slow oracle stay below it")
        ->check(CLI::Range(1, 1 << 24))
        ->capture_default_str();
    command->add_option("--max-rows", options->max_rows, "About how many query rows a case has at most")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    command->add_flag("--batch-invariant", options->batch_invariant,
                      "decode: that mode in every case, not in half of them");
    command->add_option("--case", options->one_case, "decode: one case, as a failure prints it");
    add_device_options(*command, options->batch);
    command->callback([options, seed, &selected] {
        options->seed_given = seed->count() > 0;
        selected.action = [options, &selected] { return verify(*options, selected.json); };
    });
}

}  // namespace flashmla::cli
