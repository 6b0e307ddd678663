// The other direction: what comes before the data in .npy and .safetensors files.
#pragma once

#include "cli/tensor_file/tensor_file.hpp"

namespace flashmla::cli {

// Version 1.0, padded so that the data begin at a multiple of 64 bytes. NumPy has no name for bfloat16 and float8:
// bfloat16 becomes uint16, float8 uint8.
std::string npy_prefix(Element element, const std::vector<std::int64_t>& shape);

// One tensor and its metadata, padded so that the data begin at a multiple of 64 bytes.
std::string safetensors_prefix(const FileTensor& tensor,
                               const std::vector<std::pair<std::string, std::string>>& metadata);

}  // namespace flashmla::cli
