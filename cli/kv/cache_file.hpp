// A cache in a file: the file mapped into memory, one tensor of it chosen, its format found out.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/tensor_file/tensor_file.hpp"
#include "core/kv_record.hpp"
#include "flashmla/tensor_view.hpp"

namespace flashmla::cli {

// A file's bytes, private to this process: they may be written to without changing the file.
class MappedFile {
public:
    explicit MappedFile(const std::string& path);  // throws kExitBadInput
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&&) = delete;

    std::span<std::byte> bytes() const { return {data_, size_}; }

private:
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

struct CacheFileOptions {
    std::string path;
    std::string tensor;     // of a .safetensors file with more than one
    std::string format;     // empty = found out
    std::int64_t page = 0;  // tokens a page; 0 = from the shape
    double scale = 0;       // of fp8_flat; 0 = the file's own, or 1
};

// Pages in memory, as commands look at them.
struct CachePages {
    core::CacheView cache;

    std::int64_t tokens() const { return cache.num_pages * cache.page_size; }
    // Where a token's parts lie; `slot` is page * page_size + token.
    core::RecordParts<const std::uint8_t> parts(std::int64_t slot) const {
        return core::record_parts<const std::uint8_t>(cache.format, cache.page(slot / cache.page_size),
                                                      slot % cache.page_size, cache.page_size, cache.record_bytes);
    }
    // The d_qk values of a token as fp32.
    void decode(std::int64_t slot, float* to) const {
        core::decode_record(cache.format, parts(slot), cache.d_qk, to, cache.scale);
    }
    // Pages [first, first + count).
    CachePages some(std::int64_t first, std::int64_t count) const;
    // As the library's functions take it.
    TensorView view() const;
    // "fp8_656, 12 pages of 64 tokens, d_qk 576"
    std::string describe() const;
};

// Pages of a format over `memory`, which holds num_pages times cache_page_bytes().
CachePages pages_over(std::byte* memory, CacheFormat format, std::int64_t d_qk, std::int64_t num_pages,
                      std::int64_t page_size, double scale);

struct CacheFile : CachePages {
    std::string path;
    MappedFile file;
    FileTensor tensor;
    std::string why;  // this is the format

    nlohmann::ordered_json to_json() const;
};

// One tensor of a file: the named one, or the only one. Throws with the names to choose from.
FileTensor chosen_tensor(const TensorFile& file, const std::string& path, const std::string& wanted);

// Maps and parses a file; throws kExitBadInput with what is wrong.
TensorFile parsed_file(const MappedFile& file, const std::string& path);

// Throws kExitBadInput with what is wrong and which option helps.
CacheFile open_cache(const CacheFileOptions& options);

// --format, --tensor, --page and --scale.
void add_cache_file_options(CLI::App& command, CacheFileOptions& options);

CacheFormat format_named(const std::string& name);
CLI::Validator is_format();

// "page 3 token 17"
std::string slot_text(const core::CacheView& cache, std::int64_t slot);

}  // namespace flashmla::cli
