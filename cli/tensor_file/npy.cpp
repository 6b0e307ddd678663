// .npy: a magic word, a version, the length of a header, the header (a Python dict literal of three entries), the data.
#include <charconv>
#include <cstring>
#include <optional>

#include "cli/tensor_file/tensor_file.hpp"

namespace flashmla::cli {
namespace {

constexpr std::size_t kMagicBytes = 8;  // "\x93NUMPY", major and minor version

Status bad(const std::string& what) { return invalid_argument(".npy header: " + what); }

// Reads the literal from left to right. Every step returns whether it found what it looked for.
class Literal {
public:
    explicit Literal(std::string_view text) : rest_(text) {}

    bool take(char c) {
        skip_space();
        if (rest_.empty() || rest_.front() != c) return false;
        rest_.remove_prefix(1);
        return true;
    }

    bool take_word(std::string_view word) {
        skip_space();
        if (!rest_.starts_with(word)) return false;
        rest_.remove_prefix(word.size());
        return true;
    }

    // A string without escapes, in single or double quotes.
    std::optional<std::string_view> take_string() {
        skip_space();
        if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) return std::nullopt;
        const std::size_t end = rest_.find(rest_.front(), 1);
        if (end == std::string_view::npos) return std::nullopt;
        const std::string_view text = rest_.substr(1, end - 1);
        if (text.find('\\') != std::string_view::npos) return std::nullopt;
        rest_.remove_prefix(end + 1);
        return text;
    }

    std::optional<std::int64_t> take_integer() {
        skip_space();
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
        if (error != std::errc{}) return std::nullopt;
        rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
        if (!rest_.empty() && rest_.front() == 'L') rest_.remove_prefix(1);  // as Python 2 wrote it
        return value;
    }

    bool at_end() {
        skip_space();
        return rest_.empty();
    }

    std::string shown() const { return "'" + printable(rest_) + "'"; }

private:
    void skip_space() {
        while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n' || rest_.front() == '\t')) {
            rest_.remove_prefix(1);
        }
    }

    std::string_view rest_;
};

struct Header {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::int64_t>> shape;
};

Result<std::vector<std::int64_t>> take_shape(Literal& literal) {
    std::vector<std::int64_t> shape;
    if (!literal.take('(')) return bad("shape: wanted a tuple at " + literal.shown());
    while (!literal.take(')')) {
        const std::optional<std::int64_t> extent = literal.take_integer();
        if (!extent) return bad("shape: wanted an integer that fits 64 bits at " + literal.shown());
        if (shape.size() == kMaxFileRank) {
            return bad("shape: more than " + std::to_string(kMaxFileRank) + " dimensions");
        }
        shape.push_back(*extent);
        if (literal.take(',')) continue;
        if (!literal.take(')')) return bad("shape: wanted ',' or ')' at " + literal.shown());
        break;
    }
    return shape;
}

Status take_entry(Literal& literal, Header& header) {
    const std::optional<std::string_view> key = literal.take_string();
    if (!key || !literal.take(':')) return bad("wanted 'key': value at " + literal.shown());
    if (*key == "descr" && !header.descr) {
        const std::optional<std::string_view> descr = literal.take_string();
        if (!descr) return bad("descr: wanted the name of a plain type (no structure) at " + literal.shown());
        header.descr = std::string(*descr);
    } else if (*key == "fortran_order" && !header.fortran_order) {
        if (literal.take_word("True")) {
            header.fortran_order = true;
        } else if (literal.take_word("False")) {
            header.fortran_order = false;
        } else {
            return bad("fortran_order: wanted True or False at " + literal.shown());
        }
    } else if (*key == "shape" && !header.shape) {
        Result<std::vector<std::int64_t>> shape = take_shape(literal);
        if (!shape.ok()) return shape.status();
        header.shape = std::move(shape).value();
    } else {
        return bad("the key '" + printable(*key) + "' is unknown or comes twice");
    }
    return {};
}

Result<Header> parse_header(std::string_view text) {
    Literal literal(text);
    Header header;
    if (!literal.take('{')) return bad("wanted '{' at " + literal.shown());
    while (!literal.take('}')) {
        if (Status status = take_entry(literal, header); !status.ok()) return status;
        if (literal.take(',')) continue;
        if (!literal.take('}')) return bad("wanted ',' or '}' at " + literal.shown());
        break;
    }
    if (!literal.at_end()) return bad("more follows the dictionary: " + literal.shown());
    if (!header.descr || !header.fortran_order || !header.shape) {
        return bad("wanted the keys descr, fortran_order and shape");
    }
    return header;
}

Result<Element> element_of(std::string_view descr) {
    constexpr std::pair<const char*, Element> kTypes[] = {
        {"f2", Element::kFloat16}, {"f4", Element::kFloat32}, {"f8", Element::kFloat64}, {"b1", Element::kBool},
        {"u1", Element::kUInt8},   {"i1", Element::kInt8},    {"u2", Element::kUInt16},  {"i2", Element::kInt16},
        {"u4", Element::kUInt32},  {"i4", Element::kInt32},   {"u8", Element::kUInt64},  {"i8", Element::kInt64},
        {"V1", Element::kRaw1},    {"V2", Element::kRaw2},
    };
    const char order = descr.empty() ? '?' : descr.front();
    for (const auto& [code, element] : kTypes) {
        if (descr.empty() || descr.substr(1) != code) continue;
        if (order == '>' && size_bytes(element) > 1) {
            return bad("descr: '" + printable(descr) + "' is big-endian, wanted little-endian values");
        }
        if (order == '<' || order == '|' || order == '=' || order == '>') return element;
    }
    return bad("descr: got '" + printable(descr) +
               "', wanted little-endian f2, f4, f8, b1, u1, i1, u2, i2, u4, i4, u8, i8, V1 or V2");
}

}  // namespace

Result<TensorFile> parse_npy(std::span<const std::byte> file) {
    if (file.size() < kMagicBytes || std::memcmp(file.data(), "\x93NUMPY", 6) != 0) {
        return invalid_argument(".npy: the file does not begin with \\x93NUMPY and a version");
    }
    const auto byte_at = [&](std::size_t i) { return std::to_integer<std::size_t>(file[i]); };
    const std::size_t major = byte_at(6);
    if (major < 1 || major > 3)
        return invalid_argument(".npy: version " + std::to_string(major) + ", wanted 1, 2 or 3");
    const std::size_t length_bytes = major == 1 ? 2 : 4;
    const std::size_t header_begin = kMagicBytes + length_bytes;
    if (file.size() < header_begin) return invalid_argument(".npy: the file ends within its header");
    std::size_t header_bytes = 0;
    for (std::size_t i = 0; i < length_bytes; ++i) header_bytes |= byte_at(kMagicBytes + i) << (8 * i);
    if (header_bytes > file.size() - header_begin) {
        return invalid_argument(".npy: the header claims " + std::to_string(header_bytes) + " bytes, the file has " +
                                std::to_string(file.size() - header_begin) + " after its length");
    }
    const Result<Header> header =
        parse_header({reinterpret_cast<const char*>(file.data()) + header_begin, header_bytes});
    if (!header.ok()) return header.status();
    const Result<Element> element = element_of(*header.value().descr);
    if (!element.ok()) return element.status();

    FileTensor tensor{.name = {}, .element = element.value(), .shape = *header.value().shape, .begin = 0, .bytes = 0};
    const Result<std::size_t> bytes = tensor_bytes(tensor.element, tensor.shape);
    if (!bytes.ok()) return bad(bytes.status().message());
    std::size_t long_axes = 0;
    for (const std::int64_t extent : tensor.shape) long_axes += extent != 1;
    if (*header.value().fortran_order && long_axes > 1) {
        return bad("fortran_order: got True, wanted rows in C order (numpy.ascontiguousarray)");
    }
    tensor.begin = header_begin + header_bytes;
    tensor.bytes = bytes.value();
    if (tensor.bytes != file.size() - tensor.begin) {
        return invalid_argument(".npy: " + tensor.describe() + " needs " + std::to_string(tensor.bytes) +
                                " bytes, the file has " + std::to_string(file.size() - tensor.begin) +
                                " after its header");
    }
    return TensorFile{.tensors = {std::move(tensor)}, .metadata = {}};
}

}  // namespace flashmla::cli
