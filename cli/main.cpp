// The command line program: parses, runs one subcommand, turns failures into a message and an exit status.
#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <new>

#include "cli/command.hpp"
#include "cli/help_format.hpp"
#include "cli/usage_errors.hpp"
#include "flashmla/version.h"

namespace flashmla::cli {
namespace {

ExitCode report(const Failure& failure, bool json) {
    std::fflush(stdout);
    fmt::print(stderr, "flashmla: {}\n", failure.message);
    if (json) print_json({{"error", {{"exit_code", static_cast<int>(failure.code)}, {"message", failure.message}}}});
    return failure.code;
}

ExitCode run_guarded(const Selected& selected) {
    try {
        return selected.action();
    } catch (const Failure& failure) {
        return report(failure, selected.json);
    } catch (const std::bad_alloc&) {
        return report({kExitRuntimeError, "out of memory; use fewer or shorter requests"}, selected.json);
    } catch (const std::exception& error) {
        return report({kExitRuntimeError, error.what()}, selected.json);
    }
}

int program(int argc, char** argv) {
    CLI::App app{"flashmla: multi-head latent attention kernels, run, measured and checked"};
    app.formatter(std::make_shared<HelpFormatter>());
    app.set_version_flag("--version", FLASHMLA_VERSION_STRING);
    app.require_subcommand(0, 1);  // none is reported below: an unknown one should be named, not called missing
    app.footer(
        "Exit status: 0 fine, 1 a check failed, 2 bad options or input, 3 not supported here, 4 failed while running.\n"
        "`flashmla COMMAND --help` lists a command's options with examples.");
    Selected selected;
    add_run(app, selected);
    add_simulate(app, selected);
    add_info(app, selected);
    add_plan(app, selected);
    add_verify(app, selected);
    add_bench(app, selected);
    add_kv(app, selected);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& help) {
        return app.exit(help);
    } catch (const CLI::ParseError& error) {
        return report({kExitBadInput, usage_error(app, error)}, selected.json);
    }
    if (!selected.action) {
        return report({kExitBadInput, "a command is needed: " + command_names(app) + "\nTry `flashmla --help`."},
                      selected.json);
    }
    return run_guarded(selected);
}

}  // namespace
}  // namespace flashmla::cli

int main(int argc, char** argv) {
    try {
        return flashmla::cli::program(argc, argv);
    } catch (...) {  // reporting itself failed: out of memory, or a closed standard output
        std::fputs("flashmla: failed while reporting\n", stderr);
        return flashmla::cli::kExitRuntimeError;
    }
}
