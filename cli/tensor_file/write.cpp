#include "cli/tensor_file/write.hpp"

#include <nlohmann/json.hpp>

namespace flashmla::cli {
namespace {

constexpr std::size_t kAlignment = 64;

// Spaces, so that `before` + text + `after` bytes are a multiple of the alignment.
std::string padded(std::string text, std::size_t before, std::size_t after) {
    while ((before + text.size() + after) % kAlignment != 0) text += ' ';
    return text;
}

std::string little_endian(std::uint64_t value, std::size_t bytes) {
    std::string text;
    for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
    return text;
}

// NumPy's name for elements of the size and kind that caches are made of.
const char* numpy_descr(Element element) {
    if (element == Element::kFloat16) return "<f2";
    if (element == Element::kFloat32) return "<f4";
    return size_bytes(element) == 2 ? "<u2" : "|u1";
}

const char* safetensors_dtype(Element element) {
    switch (element) {
        case Element::kBFloat16: return "BF16";
        case Element::kFloat16: return "F16";
        case Element::kFloat32: return "F32";
        case Element::kFloat8E4m3: return "F8_E4M3";
        default: return "U8";
    }
}

}  // namespace

std::string npy_prefix(Element element, const std::vector<std::int64_t>& shape) {
    std::string header = "{'descr': '" + std::string(numpy_descr(element)) + "', 'fortran_order': False, 'shape': (";
    for (const std::int64_t extent : shape) header += std::to_string(extent) + ", ";
    header = padded(header + "), }", 10, 1) + "\n";
    return std::string("\x93NUMPY\x01\x00", 8) + little_endian(header.size(), 2) + header;
}

std::string safetensors_prefix(const FileTensor& tensor,
                               const std::vector<std::pair<std::string, std::string>>& metadata) {
    nlohmann::ordered_json header;
    for (const auto& [key, value] : metadata) header["__metadata__"][key] = value;
    header[tensor.name] = {
        {"dtype", safetensors_dtype(tensor.element)}, {"shape", tensor.shape}, {"data_offsets", {0, tensor.bytes}}};
    const std::string text = padded(header.dump(), 8, 0);
    return little_endian(text.size(), 8) + text;
}

}  // namespace flashmla::cli
