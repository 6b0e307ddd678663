// The subcommands of `flashmla kv`.
#pragma once

#include "cli/command.hpp"

namespace flashmla::cli {

void add_kv_inspect(CLI::App& kv, Selected& selected);
void add_kv_verify(CLI::App& kv, Selected& selected);
void add_kv_convert(CLI::App& kv, Selected& selected);
void add_kv_diff(CLI::App& kv, Selected& selected);

}  // namespace flashmla::cli
