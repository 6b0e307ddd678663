#include "cli/kv/source_rows.hpp"

#include <fmt/core.h>

#include <optional>

#include "cli/exit_codes.hpp"

namespace flashmla::cli {
namespace {

std::optional<DType> dtype_of(Element element, const std::string& format) {
    switch (element) {
        case Element::kFloat32: return DType::kFloat32;
        case Element::kFloat16: return DType::kFloat16;
        case Element::kBFloat16:
        case Element::kRaw2: return DType::kBFloat16;
        case Element::kUInt16:
        case Element::kInt16:
            if (format == name(CacheFormat::kBFloat16)) return DType::kBFloat16;
            if (format == name(CacheFormat::kFloat16)) return DType::kFloat16;
            return std::nullopt;
        default: return std::nullopt;
    }
}

}  // namespace

SourceRows open_source(const std::string& path, const std::string& tensor, const std::string& format, std::int64_t rows,
                       std::int64_t width) {
    MappedFile file(path);
    FileTensor chosen = chosen_tensor(parsed_file(file, path), path, tensor);
    const std::optional<DType> dtype = dtype_of(chosen.element, format);
    if (!dtype) {
        throw Failure{kExitBadInput, path + ": " + chosen.describe() +
                                         ": wanted float32, float16 or bfloat16 (16-bit integers: --source-format)"};
    }
    const auto row_bytes = width * static_cast<std::int64_t>(size_bytes(*dtype));
    if (chosen.shape.empty() || chosen.shape.back() != width ||
        static_cast<std::int64_t>(chosen.bytes) != rows * row_bytes) {
        throw Failure{kExitBadInput, fmt::format("{}: {}: wanted {} rows of {} values, as the cache has tokens", path,
                                                 chosen.describe(), rows, width)};
    }
    return {.file = std::move(file), .tensor = std::move(chosen), .dtype = *dtype, .rows = rows, .width = width};
}

void SourceRows::decode(std::int64_t row, float* to) const {
    const auto element = static_cast<std::int64_t>(size_bytes(dtype));
    const std::byte* from = file.bytes().data() + tensor.begin + row * width * element;
    for (std::int64_t i = 0; i < width; ++i) {
        to[i] = dtype == DType::kFloat32
                    ? core::load_unaligned<float>(from + i * element)
                    : core::decode_16bit(dtype, core::load_unaligned<std::uint16_t>(from + i * element));
    }
}

TensorView SourceRows::columns(std::int64_t begin, std::int64_t n, std::int64_t first, std::int64_t count) const {
    const auto element = static_cast<std::int64_t>(size_bytes(dtype));
    TensorView view =
        contiguous_view(file.bytes().data() + tensor.begin + (begin * width + first) * element, dtype, {n, count}, {});
    view.stride[0] = width;
    return view;
}

}  // namespace flashmla::cli
