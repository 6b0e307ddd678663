#include "cli/command.hpp"

#include <fmt/core.h>

#include "flashmla/build_info.hpp"

namespace flashmla::cli {

CLI::App* add_command(CLI::App& app, Selected& selected, const std::string& name, const std::string& description,
                      const std::vector<std::string>& examples) {
    CLI::App* command = app.add_subcommand(name, description);
    command->add_flag("--json", selected.json, "Print one JSON document instead of text");
    std::string footer = "Examples:\n";
    for (const std::string& example : examples) footer += "  " + example + "\n";
    command->footer(footer);
    return command;
}

Json json_header(const std::string& command) {
    const BuildInfo build = build_info();
    return {{"command", command}, {"version", build.version}, {"git_revision", build.git_revision}};
}

void print_json(const Json& document) { fmt::print("{}\n", document.dump(2)); }

}  // namespace flashmla::cli
