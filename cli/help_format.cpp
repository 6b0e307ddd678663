#include "cli/help_format.hpp"

#include <algorithm>
#include <sstream>

namespace flashmla::cli {
namespace {

constexpr std::size_t kNameColumns = 28;
constexpr std::size_t kTextColumns = 90;

// CLI11 joins an option's type and its checks: "INT:INT in [1 - 9]", "TEXT:{bf16,fp16}", "TEXT:FILE". The range is left
// out (an error says it), of a choice only the words are kept.
std::string value_word(const std::string& type) {
    const std::string kind = type.substr(0, type.find(':'));
    const std::size_t brace = type.find('{');
    if (brace != std::string::npos) {
        std::string words = type.substr(brace + 1, type.find('}') - brace - 1);
        std::replace(words.begin(), words.end(), ',', '|');
        return words;
    }
    if (type.find("FILE") != std::string::npos) return "FILE";
    return kind == "INT" || kind == "UINT" ? "N" : kind == "FLOAT" ? "X" : kind;
}

std::string in_lines(const std::string& text) {
    std::istringstream words(text);
    std::string lines;
    std::size_t column = 0;
    for (std::string word; words >> word;) {
        if (column > 0 && column + 1 + word.size() > kTextColumns) {
            lines += '\n';
            column = 0;
        } else if (column > 0) {
            lines += ' ';
            ++column;
        }
        lines += word;
        column += word.size();
    }
    return lines;
}

}  // namespace

HelpFormatter::HelpFormatter() { column_width(kNameColumns); }

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
    if (option->get_type_size() == 0) return "";
    return " " + (option->get_option_text().empty() ? value_word(option->get_type_name()) : option->get_option_text());
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
    std::string text = option->get_description();
    if (!option->get_default_str().empty()) text += " [" + option->get_default_str() + "]";
    std::string others;
    for (const CLI::Option* other : option->get_excludes()) others += (others.empty() ? "" : ", ") + other->get_name();
    if (!others.empty()) text += "; not with " + others;
    return in_lines(text);
}

}  // namespace flashmla::cli
