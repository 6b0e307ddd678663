// Rows of unquantised values in a file, to hold a cache against.
#pragma once

#include <string>

#include "cli/kv/cache_file.hpp"

namespace flashmla::cli {

struct SourceRows {
    MappedFile file;
    FileTensor tensor;
    DType dtype = DType::kFloat32;
    std::int64_t rows = 0, width = 0;

    void decode(std::int64_t row, float* to) const;
    // Columns [first, first + count) of rows [begin, begin + n), as the library takes them.
    TensorView columns(std::int64_t begin, std::int64_t n, std::int64_t first, std::int64_t count) const;
};

// Values of float32, float16, bfloat16 or, with `format` bf16 or fp16, 16-bit integers; every axis but the last counts
// rows. Throws kExitBadInput unless there are `rows` rows of `width`.
SourceRows open_source(const std::string& path, const std::string& tensor, const std::string& format, std::int64_t rows,
                       std::int64_t width);

}  // namespace flashmla::cli
