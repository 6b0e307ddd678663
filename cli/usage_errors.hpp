// What is wrong with a command line, in words that name what there is.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace flashmla::cli {

// "run, simulate or info": the commands below an application or a command.
std::string command_names(const CLI::App& app);

std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace flashmla::cli
