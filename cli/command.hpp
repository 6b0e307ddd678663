// Subcommands: each file adds its own to the application and, when it was asked for, leaves the action to take.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/exit_codes.hpp"

namespace flashmla::cli {

using Json = nlohmann::ordered_json;
using Action = std::function<ExitCode()>;

struct Selected {
    Action action;
    bool json = false;  // errors are reported in JSON too
};

void add_run(CLI::App& app, Selected& selected);
void add_simulate(CLI::App& app, Selected& selected);
void add_info(CLI::App& app, Selected& selected);
void add_plan(CLI::App& app, Selected& selected);
void add_verify(CLI::App& app, Selected& selected);
void add_bench(CLI::App& app, Selected& selected);
void add_kv(CLI::App& app, Selected& selected);

// A subcommand with its --json flag and examples under its help.
CLI::App* add_command(CLI::App& app, Selected& selected, const std::string& name, const std::string& description,
                      const std::vector<std::string>& examples);

// The start of every JSON document.
Json json_header(const std::string& command);

void print_json(const Json& document);

}  // namespace flashmla::cli
