#include "cli/tensor_file/tensor_file.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace flashmla::cli {

std::size_t size_bytes(Element element) {
    switch (element) {
        case Element::kFloat8E4m3:
        case Element::kFloat8E5m2:
        case Element::kFloat8E8m0:
        case Element::kBool:
        case Element::kUInt8:
        case Element::kInt8:
        case Element::kRaw1: return 1;
        case Element::kBFloat16:
        case Element::kFloat16:
        case Element::kUInt16:
        case Element::kInt16:
        case Element::kRaw2: return 2;
        case Element::kFloat32:
        case Element::kUInt32:
        case Element::kInt32: return 4;
        case Element::kFloat64:
        case Element::kUInt64:
        case Element::kInt64: return 8;
    }
    return 0;
}

const char* name(Element element) {
    switch (element) {
        case Element::kBFloat16: return "bfloat16";
        case Element::kFloat16: return "float16";
        case Element::kFloat32: return "float32";
        case Element::kFloat64: return "float64";
        case Element::kFloat8E4m3: return "float8_e4m3fn";
        case Element::kFloat8E5m2: return "float8_e5m2";
        case Element::kFloat8E8m0: return "float8_e8m0fnu";
        case Element::kBool: return "bool";
        case Element::kUInt8: return "uint8";
        case Element::kInt8: return "int8";
        case Element::kUInt16: return "uint16";
        case Element::kInt16: return "int16";
        case Element::kUInt32: return "uint32";
        case Element::kInt32: return "int32";
        case Element::kUInt64: return "uint64";
        case Element::kInt64: return "int64";
        case Element::kRaw1: return "raw 1-byte values";
        case Element::kRaw2: return "raw 2-byte values";
    }
    return "unknown";
}

std::string FileTensor::describe() const {
    std::string text = std::string(flashmla::cli::name(element)) + " (";
    for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
    return text + (shape.size() == 1 ? ",)" : ")");
}

Result<std::size_t> tensor_bytes(Element element, const std::vector<std::int64_t>& shape) {
    if (shape.size() > kMaxFileRank) {
        return invalid_argument("shape: got " + std::to_string(shape.size()) + " dimensions, wanted at most " +
                                std::to_string(kMaxFileRank));
    }
    for (const std::int64_t extent : shape) {
        if (extent < 0) return invalid_argument("shape: got a dimension of " + std::to_string(extent));
    }
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return std::size_t{0};
    auto bytes = static_cast<std::int64_t>(size_bytes(element));
    for (const std::int64_t extent : shape) {
        if (__builtin_mul_overflow(bytes, extent, &bytes)) {
            return invalid_argument("shape: its size does not fit 63 bits");
        }
    }
    return static_cast<std::size_t>(bytes);
}

std::string printable(std::string_view text, std::size_t most) {
    std::string shown(text.substr(0, most));
    for (char& c : shown) {
        if (c < ' ' || c > '~') c = '?';
    }
    return text.size() > most ? shown + "..." : shown;
}

Result<TensorFile> parse_tensor_file(std::span<const std::byte> file) {
    constexpr char kNpy[] = "\x93NUMPY";
    const bool npy = file.size() >= 6 && std::memcmp(file.data(), kNpy, 6) == 0;
    return npy ? parse_npy(file) : parse_safetensors(file);
}

}  // namespace flashmla::cli
