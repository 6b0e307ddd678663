#include "cli/usage_errors.hpp"

#include <fmt/core.h>

#include <vector>

namespace flashmla::cli {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
    return app.get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); });
}

// "a, b or c"
std::string one_of(const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i) {
        text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
    }
    return text;
}

// Options that begin like the one that there is not.
std::string alike(const CLI::App& command, const std::string& wanted) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
        const std::string name = option->get_name();
        if (wanted.size() > 3 && (name.starts_with(wanted) || wanted.starts_with(name))) names.push_back(name);
    }
    return names.empty() ? "" : "; is " + one_of(names) + " meant?";
}

std::string with_help(const std::string& text, const std::string& command) {
    return fmt::format("{}\nTry `{} --help`.", text, command);
}

}  // namespace

std::string command_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
    return one_of(names);
}

std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
    const CLI::App* command = &app;
    std::string name = "flashmla";
    while (!command->get_subcommands().empty()) {
        command = command->get_subcommands().front();
        name += " " + command->get_name();
    }
    std::string text = error.what();
    const auto is = [&](CLI::ExitCodes code) { return error.get_exit_code() == static_cast<int>(code); };
    const bool has_commands = !commands_of(*command).empty();
    if (!is(CLI::ExitCodes::ExtrasError) && !(is(CLI::ExitCodes::RequiredError) && has_commands)) {
        return with_help(text, name);
    }
    const std::vector<std::string> unknown = command->remaining();
    if (unknown.empty()) return with_help("a command is needed: " + command_names(*command), name);
    const std::string& first = unknown.front();
    if (first.starts_with("-")) {
        text = fmt::format("{}: {} has no such option{}", first, name, alike(*command, first));
    } else if (has_commands) {
        text = fmt::format("{}: no such command; there are {}", first, command_names(*command));
    }
    return with_help(text, name);
}

}  // namespace flashmla::cli
