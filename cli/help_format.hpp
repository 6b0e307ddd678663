// How --help is laid out: "--heads N  Query heads [128]", long texts in lines, defaults in brackets behind them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace flashmla::cli {

class HelpFormatter : public CLI::Formatter {
public:
    HelpFormatter();
    std::string make_option_opts(const CLI::Option* option) const override;
    std::string make_option_desc(const CLI::Option* option) const override;
};

}  // namespace flashmla::cli
