#include "cli/kv/cache_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "cli/exit_codes.hpp"
#include "cli/text.hpp"

namespace flashmla::cli {
namespace {

constexpr std::int64_t kMostDims = 1 << 20;  // values of a record; core::CacheView holds them as int

// What the file's metadata says, as `kv convert` writes it.
std::string metadata(const TensorFile& file, const std::string& key) {
    for (const auto& [known, value] : file.metadata) {
        if (known == "flashmla." + key) return value;
    }
    return {};
}

template <class Number>
Number metadata_number(const TensorFile& file, const std::string& key, Number otherwise) {
    const std::string text = metadata(file, key);
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return !text.empty() && error == std::errc{} && end == text.data() + text.size() ? value : otherwise;
}

// The shape as (pages, tokens a page, bytes of a record, bytes of a page).
struct Layout {
    std::int64_t pages = 0, page = 0, record_bytes = 0, page_bytes = 0;
    bool raw_pages = false;  // the last axis is a whole page
};

// A page of fp8_584 is padded, but tells its number of tokens.
std::int64_t tokens_of_584_page(std::int64_t page_bytes) {
    const std::int64_t tokens = page_bytes / core::kv584::kRecordBytes;
    const bool fits = tokens > 0 && cache_page_bytes(CacheFormat::kFp8_584, core::kv584::kDimQk, tokens) == page_bytes;
    return fits ? tokens : 0;
}

Layout layout_of(const FileTensor& tensor, std::int64_t page, const std::string& path) {
    const auto element = static_cast<std::int64_t>(size_bytes(tensor.element));
    const std::vector<std::int64_t>& shape = tensor.shape;
    const auto refuse = [&](const std::string& why) {
        return Failure{kExitBadInput, path + ": " + tensor.describe() + ": " + why};
    };
    if (shape.size() < 2 || shape.size() > 4) {
        throw refuse("wanted (pages, page, 1, record), (pages, page, record), (tokens, record) or (pages, page bytes)");
    }
    if (tensor.bytes == 0) throw refuse("it holds nothing");
    if (shape.size() == 4 && shape[2] != 1) throw refuse("wanted 1 KV head, the third axis");
    const std::int64_t row_bytes = shape.back() * element;
    if (shape.size() > 2) {
        if (page != 0 && page != shape[1])
            throw refuse("--page: got " + std::to_string(page) + " for pages of the shape's");
        return {.pages = shape[0], .page = shape[1], .record_bytes = row_bytes, .page_bytes = shape[1] * row_bytes};
    }
    const bool one_byte = element == 1;
    const bool record = !one_byte || row_bytes <= core::kv656::kRecordBytes;
    if (page == 0 && one_byte && !record) page = tokens_of_584_page(row_bytes);
    if (page == 0 && !record)
        throw refuse("give --page, and --format for anything but fp8_584: a row is a page of bytes");
    if (page == 0) return {.pages = shape[0], .page = 1, .record_bytes = row_bytes, .page_bytes = row_bytes};
    return {.pages = shape[0], .page = page, .record_bytes = 0, .page_bytes = row_bytes, .raw_pages = true};
}

// The format that element type and record bytes mean, with the reason, when they mean one.
std::pair<std::optional<CacheFormat>, std::string> guessed_format(const FileTensor& tensor, const Layout& layout) {
    TensorView view = contiguous_view(nullptr, DType::kUInt8, {layout.pages, layout.page, 1, layout.record_bytes}, {});
    std::int64_t d_qk = layout.record_bytes;
    std::string note;
    switch (tensor.element) {
        case Element::kRaw2: note = ", as NumPy writes ml_dtypes.bfloat16"; [[fallthrough]];
        case Element::kBFloat16: view.dtype = DType::kBFloat16; break;
        case Element::kFloat16: view.dtype = DType::kFloat16; break;
        case Element::kUInt8:
        case Element::kInt8:
        case Element::kRaw1:
        case Element::kFloat8E4m3:
            if (layout.raw_pages && tokens_of_584_page(layout.page_bytes) == layout.page) {
                return {CacheFormat::kFp8_584, "pages of " + grouped(layout.page_bytes) + " bytes"};
            }
            if (d_qk == core::kv656::kRecordBytes) d_qk = core::kv656::kDimQk;
            if (d_qk == core::kv584::kRecordBytes) d_qk = core::kv584::kDimQk;
            break;
        default: return {};
    }
    if (layout.raw_pages) return {};
    if (size_bytes(view.dtype) == 2) d_qk = view.shape[3] = layout.record_bytes / 2;
    const Result<CacheFormat> format = cache_format_of(d_qk, view);
    if (!format.ok()) return {};
    return {format.value(),
            fmt::format("records of {} bytes of {}{}", layout.record_bytes, name(tensor.element), note)};
}

std::string why_no_format(Element element) {
    switch (element) {
        case Element::kUInt16:
        case Element::kInt16: return "give --format bf16 or fp16: the values are integers of 16 bits";
        case Element::kRaw1:
        case Element::kUInt8:
        case Element::kInt8: return "give --format: bytes of this shape are no format's records";
        default: return "no cache format stores such values; wanted bf16, fp16, e4m3 or bytes";
    }
}

// Values of a record, or 0 when the format has no such record.
std::int64_t dims_of(CacheFormat format, const Layout& layout) {
    const bool packed = format == CacheFormat::kFp8_656 || format == CacheFormat::kFp8_584;
    const std::int64_t fixed = format == CacheFormat::kFp8_656 ? core::kv656::kDimQk : core::kv584::kDimQk;
    const std::int64_t record = layout.raw_pages ? layout.page_bytes / layout.page : layout.record_bytes;
    const std::int64_t one = cache_record_bytes(format, packed ? fixed : 1);
    const bool whole = record % one == 0 && (!layout.raw_pages || layout.page_bytes % layout.page == 0);
    if (!packed) return whole ? record / one : 0;
    return layout.raw_pages ? (record >= one ? fixed : 0) : (record == one ? fixed : 0);
}

}  // namespace

FileTensor chosen_tensor(const TensorFile& file, const std::string& path, const std::string& wanted) {
    std::string listing;
    for (const FileTensor& tensor : file.tensors) {
        if (tensor.name == wanted && !wanted.empty()) return tensor;
        listing += "\n  " + printable(tensor.name, 200) + ": " + tensor.describe();
    }
    if (wanted.empty() && file.tensors.size() == 1) return file.tensors[0];
    if (file.tensors.empty()) throw Failure{kExitBadInput, path + ": holds no tensor"};
    throw Failure{kExitBadInput, path + ": " + (wanted.empty() ? "give --tensor" : "no tensor '" + wanted + "'") +
                                     "; there are:" + listing};
}

CacheFormat format_named(const std::string& wanted) {
    for (const CacheFormat format : kAllCacheFormats) {
        if (wanted == name(format)) return format;
    }
    throw Failure{kExitBadInput, "format: got '" + wanted + "'"};
}

CLI::Validator is_format() {
    std::vector<std::string> names;
    for (const CacheFormat format : kAllCacheFormats) names.emplace_back(name(format));
    return CLI::IsMember(names);
}

TensorFile parsed_file(const MappedFile& file, const std::string& path) {
    Result<TensorFile> result = parse_tensor_file(file.bytes());
    if (!result.ok()) throw Failure{kExitBadInput, path + ": " + result.status().message()};
    return std::move(result).value();
}

CachePages pages_over(std::byte* memory, CacheFormat format, std::int64_t d_qk, std::int64_t num_pages,
                      std::int64_t page_size, double scale) {
    return {{.format = format,
             .d_qk = static_cast<int>(d_qk),
             .num_pages = num_pages,
             .page_size = page_size,
             .page_bytes = cache_page_bytes(format, d_qk, page_size),
             .record_bytes = cache_record_bytes(format, d_qk),
             .scale = static_cast<float>(scale),
             .data = reinterpret_cast<std::uint8_t*>(memory)}};
}

CacheFile open_cache(const CacheFileOptions& options) {
    MappedFile mapped(options.path);
    const TensorFile parsed = parsed_file(mapped, options.path);
    FileTensor tensor = chosen_tensor(parsed, options.path, options.tensor);
    const std::int64_t page = options.page != 0 ? options.page : metadata_number<std::int64_t>(parsed, "page_size", 0);
    const Layout layout = layout_of(tensor, std::max<std::int64_t>(page, 0), options.path);

    const std::string named = options.format.empty() ? metadata(parsed, "format") : options.format;
    auto [format, why] = guessed_format(tensor, layout);
    if (!named.empty()) {
        format = format_named(named);
        why = options.format.empty() ? "the file's metadata" : "--format";
    }
    const std::string what = options.path + ": " + tensor.describe();
    if (!format) throw Failure{kExitBadInput, what + ": " + why_no_format(tensor.element)};
    const std::int64_t d_qk = dims_of(*format, layout);
    if (d_qk < 1 || d_qk > kMostDims) {
        throw Failure{kExitBadInput,
                      fmt::format("{}: no records of {}{}", what, name(*format),
                                  tensor.shape.size() == 2 ? " (pages of how many tokens? --page)" : "")};
    }
    const double scale = options.scale > 0 ? options.scale : metadata_number<double>(parsed, "scale", 1);
    if (!std::isfinite(scale) || scale <= 0) throw Failure{kExitBadInput, what + ": the scale must be positive"};
    const core::CacheView cache{.format = *format,
                                .d_qk = static_cast<int>(d_qk),
                                .num_pages = layout.pages,
                                .page_size = layout.page,
                                .page_bytes = layout.page_bytes,
                                .record_bytes = cache_record_bytes(*format, d_qk),
                                .scale = static_cast<float>(scale),
                                .data = reinterpret_cast<std::uint8_t*>(mapped.bytes().data() + tensor.begin)};
    if (cache.page_size > cache.page_bytes / cache.record_bytes) {
        throw Failure{kExitBadInput, fmt::format("{}: a page of {} bytes does not hold {} records of {}", what,
                                                 cache.page_bytes, cache.page_size, cache.record_bytes)};
    }
    return {{cache}, options.path, std::move(mapped), std::move(tensor), why};
}

void add_cache_file_options(CLI::App& command, CacheFileOptions& options) {
    command
        .add_option("--format", options.format, "bf16, fp16, fp8_flat, fp8_656 or fp8_584 [found out where possible]")
        ->check(is_format());
    command.add_option("--tensor", options.tensor, "Which tensor of a .safetensors file that holds several");
    command.add_option("--page", options.page, "Tokens a page, where rows of a matrix are pages of bytes")
        ->check(CLI::Range(1, 2147483647));
    command.add_option("--scale", options.scale, "fp8_flat: what a stored 1.0 is worth [1]")
        ->check(CLI::PositiveNumber);
}

CachePages CachePages::some(std::int64_t first, std::int64_t count) const {
    CachePages made = *this;
    made.cache.data = cache.page(first);
    made.cache.num_pages = count;
    return made;
}

TensorView CachePages::view() const {
    const bool sixteen = !core::record_shape(cache.format, cache.d_qk).e4m3;
    const DType dtype = cache.format == CacheFormat::kBFloat16  ? DType::kBFloat16
                        : cache.format == CacheFormat::kFloat16 ? DType::kFloat16
                                                                : DType::kUInt8;
    TensorView made = contiguous_view(
        cache.data, dtype, {cache.num_pages, cache.page_size, 1, cache.record_bytes / (sixteen ? 2 : 1)}, {});
    made.stride[0] = cache.page_bytes / (sixteen ? 2 : 1);
    return made;
}

std::string CachePages::describe() const {
    return fmt::format("{}, {} of {}, d_qk {}", name(cache.format), count_text(cache.num_pages, "page"),
                       count_text(cache.page_size, "token"), cache.d_qk);
}

nlohmann::ordered_json CacheFile::to_json() const {
    return {{"path", path},
            {"tensor", tensor.name},
            {"element", name(tensor.element)},
            {"shape", tensor.shape},
            {"format", name(cache.format)},
            {"format_from", why},
            {"num_pages", cache.num_pages},
            {"page_size", cache.page_size},
            {"d_qk", cache.d_qk},
            {"record_bytes", cache.record_bytes},
            {"page_bytes", cache.page_bytes},
            {"scale", cache.scale}};
}

std::string slot_text(const core::CacheView& cache, std::int64_t slot) {
    return fmt::format("page {} token {}", slot / cache.page_size, slot % cache.page_size);
}

}  // namespace flashmla::cli
