// What .npy and .safetensors files hold: names, types, shapes and where the bytes lie. Nothing a header says is
// trusted: every offset and size is checked against the bytes that are there, and everything else is refused with a
// reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flashmla/status.hpp"

namespace flashmla::cli {

// Element types as files name them. kRaw1 and kRaw2 are bytes without a meaning: what NumPy writes for float8 and
// bfloat16 arrays of ml_dtypes.
enum class Element : std::uint8_t {
    kBFloat16,
    kFloat16,
    kFloat32,
    kFloat64,
    kFloat8E4m3,
    kFloat8E5m2,
    kFloat8E8m0,
    kBool,
    kUInt8,
    kInt8,
    kUInt16,
    kInt16,
    kUInt32,
    kInt32,
    kUInt64,
    kInt64,
    kRaw1,
    kRaw2,
};

std::size_t size_bytes(Element element);
const char* name(Element element);

struct FileTensor {
    std::string name;  // empty in .npy
    Element element = Element::kUInt8;
    std::vector<std::int64_t> shape;  // row-major
    std::size_t begin = 0;            // of its first byte in the file
    std::size_t bytes = 0;            // exactly the elements of the shape

    std::string describe() const;  // "uint8 (12, 64, 1, 656)"
};

struct TensorFile {
    std::vector<FileTensor> tensors;                            // .npy: one; .safetensors: in the order of their bytes
    std::vector<std::pair<std::string, std::string>> metadata;  // .safetensors: its __metadata__
};

inline constexpr std::size_t kMaxFileRank = 16;

// Both read nothing outside `file`, allocate in proportion to the header that is there, and do not throw but for want
// of memory. The results point into `file` by offset and own their strings.
Result<TensorFile> parse_npy(std::span<const std::byte> file);
Result<TensorFile> parse_safetensors(std::span<const std::byte> file);

// By the first bytes: .npy has a magic word, everything else is taken for .safetensors.
Result<TensorFile> parse_tensor_file(std::span<const std::byte> file);

// Bytes of `shape`; an error when a dimension is negative, there are too many, or the product does not fit 63 bits.
Result<std::size_t> tensor_bytes(Element element, const std::vector<std::int64_t>& shape);

// Text from a file, for a message: at most `most` characters, what cannot be printed as '?'.
std::string printable(std::string_view text, std::size_t most = 40);

}  // namespace flashmla::cli
