// .safetensors: 8 bytes with the length of a JSON header, the header, the data. The header is read event by event, so
// that one of another structure is refused at its first wrong token, before it can grow.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/tensor_file/tensor_file.hpp"

namespace flashmla::cli {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMostHeaderBytes = 100'000'000;  // the format's own limit
constexpr const char* kMetadataKey = "__metadata__";

std::optional<Element> element_of(const std::string& type) {
    constexpr std::pair<const char*, Element> kTypes[] = {
        {"BF16", Element::kBFloat16},      {"F16", Element::kFloat16},
        {"F32", Element::kFloat32},        {"F64", Element::kFloat64},
        {"F8_E4M3", Element::kFloat8E4m3}, {"F8_E5M2", Element::kFloat8E5m2},
        {"F8_E8M0", Element::kFloat8E8m0}, {"BOOL", Element::kBool},
        {"U8", Element::kUInt8},           {"I8", Element::kInt8},
        {"U16", Element::kUInt16},         {"I16", Element::kInt16},
        {"U32", Element::kUInt32},         {"I32", Element::kInt32},
        {"U64", Element::kUInt64},         {"I64", Element::kInt64},
    };
    for (const auto& [known, element] : kTypes) {
        if (type == known) return element;
    }
    return std::nullopt;
}

// One tensor's entry while it is read.
struct Entry {
    std::string name;
    std::optional<Element> element;
    bool has_shape = false, has_offsets = false;
    std::vector<std::int64_t> shape, offsets;
};

// The one structure a header may have: {name: {"dtype": s, "shape": [n...], "data_offsets": [n, n]}...}, and
// {"__metadata__": {s: s...}}. Each event returns whether reading goes on; a refusal leaves its reason in `error`.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
public:
    std::vector<Entry> entries;
    std::vector<std::pair<std::string, std::string>> metadata;
    std::string error;

    bool null() override { return refuse("null"); }
    bool boolean(bool /*value*/) override { return refuse("a boolean"); }
    bool number_float(double /*value*/, const std::string& text) override {
        return refuse("the number " + printable(text));
    }
    bool binary(nlohmann::json::binary_t& /*value*/) override { return refuse("binary data"); }

    bool number_integer(std::int64_t value) override {
        return refuse("the negative number " + std::to_string(value));  // the parser sends others as unsigned
    }

    bool number_unsigned(std::uint64_t value) override {
        if (where_ != Where::kArray) return refuse("a number");
        if (value > static_cast<std::uint64_t>(INT64_MAX)) return refuse("the number " + std::to_string(value));
        if (array_->size() == array_limit_) return refuse("more than " + std::to_string(array_limit_) + " numbers");
        array_->push_back(static_cast<std::int64_t>(value));
        return true;
    }

    bool string(std::string& value) override {
        if (where_ == Where::kMetadata) {
            metadata.emplace_back(key_, value);
            return true;
        }
        if (where_ != Where::kEntry || key_ != "dtype") return refuse("the text '" + printable(value) + "'");
        entries.back().element = element_of(value);
        if (entries.back().element) return true;
        error = "'" + printable(entries.back().name) + "': dtype '" + printable(value) + "' is not known here";
        return false;
    }

    bool start_object(std::size_t /*elements*/) override {
        switch (where_) {
            case Where::kOutside: where_ = Where::kTop; return true;
            case Where::kTop:
                where_ = key_ == kMetadataKey ? Where::kMetadata : Where::kEntry;
                if (where_ == Where::kEntry)
                    entries.push_back({.name = key_, .element = {}, .shape = {}, .offsets = {}});
                keys_.clear();
                return true;
            default: return refuse("an object");
        }
    }

    bool end_object() override {
        where_ = where_ == Where::kTop ? Where::kDone : Where::kTop;
        return true;
    }

    bool start_array(std::size_t /*elements*/) override {
        if (where_ != Where::kEntry) return refuse("an array");
        Entry& entry = entries.back();
        if (key_ == "shape") {
            entry.has_shape = true;
            array_ = &entry.shape;
            array_limit_ = kMaxFileRank;
        } else if (key_ == "data_offsets") {
            entry.has_offsets = true;
            array_ = &entry.offsets;
            array_limit_ = 2;
        } else {
            return refuse("an array");
        }
        where_ = Where::kArray;
        return true;
    }

    bool end_array() override {
        where_ = Where::kEntry;
        return true;
    }

    bool key(std::string& value) override {
        std::set<std::string>& seen = where_ == Where::kTop ? names_ : keys_;
        if (!seen.insert(value).second) {
            error = "the key '" + printable(value) + "' comes twice";
            return false;
        }
        if (where_ == Where::kEntry && value != "dtype" && value != "shape" && value != "data_offsets") {
            error = "'" + printable(entries.back().name) + "' has the unknown key '" + printable(value) + "'";
            return false;
        }
        key_ = value;
        return true;
    }

    bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::json::exception&) override {
        error = "no JSON at byte " + std::to_string(position);
        return false;
    }

private:
    enum class Where : std::uint8_t { kOutside, kTop, kEntry, kMetadata, kArray, kDone };

    bool refuse(const std::string& what) {
        error = where_ == Where::kOutside ? "got " + what + ", wanted an object"
                                          : "got " + what + " at '" + printable(key_) + "'";
        return false;
    }

    Where where_ = Where::kOutside;
    std::string key_;
    std::set<std::string> names_, keys_;
    std::vector<std::int64_t>* array_ = nullptr;
    std::size_t array_limit_ = 0;
};

Result<FileTensor> checked_tensor(Entry& entry, std::size_t data_begin, std::size_t data_bytes) {
    const auto bad = [&](const std::string& what) {
        return invalid_argument(".safetensors: '" + printable(entry.name) + "': " + what);
    };
    if (!entry.element || !entry.has_shape || entry.offsets.size() != 2) {
        return bad("wanted dtype, shape and two data_offsets");
    }
    const auto begin = static_cast<std::size_t>(entry.offsets[0]);
    const auto end = static_cast<std::size_t>(entry.offsets[1]);
    if (begin > end || end > data_bytes) {
        return bad("data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "] do not lie in the " +
                   std::to_string(data_bytes) + " bytes of data");
    }
    FileTensor tensor{.name = std::move(entry.name),
                      .element = *entry.element,
                      .shape = std::move(entry.shape),
                      .begin = data_begin + begin,
                      .bytes = end - begin};
    const Result<std::size_t> needed = tensor_bytes(tensor.element, tensor.shape);
    if (!needed.ok() || needed.value() != tensor.bytes) {
        return invalid_argument(".safetensors: '" + printable(tensor.name) + "': " +
                                (needed.ok() ? tensor.describe() + " needs " + std::to_string(needed.value()) +
                                                   " bytes, its data_offsets hold " + std::to_string(tensor.bytes)
                                             : needed.status().message()));
    }
    return tensor;
}

// The format allows neither overlaps nor bytes that belong to nothing.
Status check_cover(std::vector<FileTensor>& tensors, std::size_t data_begin, std::size_t file_bytes) {
    std::sort(tensors.begin(), tensors.end(), [](const FileTensor& a, const FileTensor& b) {
        return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
    });
    std::size_t covered = data_begin;
    const std::string* last = nullptr;
    for (const FileTensor& tensor : tensors) {
        if (tensor.begin < covered) {
            return invalid_argument(".safetensors: '" + printable(tensor.name) + "' overlaps '" +
                                    (last != nullptr ? printable(*last) : "") + "'");
        }
        if (tensor.begin > covered) break;
        covered += tensor.bytes;
        last = &tensor.name;
    }
    if (covered == file_bytes) return {};
    return invalid_argument(".safetensors: the data from byte " + std::to_string(covered - data_begin) +
                            " on belong to no tensor");
}

}  // namespace

Result<TensorFile> parse_safetensors(std::span<const std::byte> file) {
    if (file.size() < kLengthBytes) {
        return invalid_argument("neither .npy nor .safetensors: " + std::to_string(file.size()) + " bytes");
    }
    std::uint64_t header_bytes = 0;
    for (std::size_t i = 0; i < kLengthBytes; ++i) header_bytes |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
    if (header_bytes > kMostHeaderBytes || header_bytes > file.size() - kLengthBytes) {
        return invalid_argument("neither .npy nor .safetensors: as the latter, its header would have " +
                                std::to_string(header_bytes) + " bytes; the file has " +
                                std::to_string(file.size() - kLengthBytes) + " after the length, the format allows " +
                                std::to_string(kMostHeaderBytes));
    }
    const auto* text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
    HeaderEvents events;
    if (!nlohmann::json::sax_parse(text, text + header_bytes, &events) || !events.error.empty()) {
        return invalid_argument(".safetensors header: " + (events.error.empty() ? "no JSON" : events.error));
    }
    const std::size_t data_begin = kLengthBytes + header_bytes;
    TensorFile parsed{.tensors = {}, .metadata = std::move(events.metadata)};
    for (Entry& entry : events.entries) {
        Result<FileTensor> tensor = checked_tensor(entry, data_begin, file.size() - data_begin);
        if (!tensor.ok()) return tensor.status();
        parsed.tensors.push_back(std::move(tensor).value());
    }
    if (Status status = check_cover(parsed.tensors, data_begin, file.size()); !status.ok()) return status;
    return parsed;
}

}  // namespace flashmla::cli
