// `flashmla kv convert`: a cache file in another format, and what that costs in accuracy.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "cli/batch_options.hpp"
#include "cli/kv/cache_file.hpp"
#include "cli/kv/kv.hpp"
#include "cli/kv/page_stats.hpp"
#include "cli/kv/token_diff.hpp"
#include "cli/tensor_file/write.hpp"
#include "cli/text.hpp"
#include "flashmla/kv_cache.hpp"

namespace flashmla::cli {
namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{64} << 20;  // of destination pages in memory at a time

struct ConvertOptions {
    CacheFileOptions file;
    std::string output, to;
    double to_scale = 1;
    bool exact_scales = false;
    BatchOptions batch;  // threads
};

// One conversion: where it went and how far its values are from the source's.
struct Converted {
    CacheFormat format = CacheFormat::kBFloat16;
    std::int64_t bytes = 0;
    DiffTally error;
    std::int64_t at_limit = 0;  // values stored as the largest finite one of the format, and not so in the source
};

// A file that takes its name only when it is complete.
class OutputFile {
public:
    explicit OutputFile(const std::string& path) : path_(path), partial_(path + ".partial") {
        file_.open(partial_, std::ios::binary | std::ios::trunc);
        if (!file_) fail();
    }
    ~OutputFile() {
        if (!path_.empty()) std::remove(partial_.c_str());
    }
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    void write(const void* data, std::int64_t bytes) {
        if (!file_.write(static_cast<const char*>(data), bytes)) fail();
    }
    void finish() {
        file_.close();
        if (!file_ || std::rename(partial_.c_str(), path_.c_str()) != 0) fail();
        path_.clear();
    }

private:
    [[noreturn]] void fail() { throw Failure{kExitRuntimeError, path_ + ": cannot be written"}; }

    std::string path_, partial_;
    std::ofstream file_;
};

// The tensor a converted cache is written as; that of fp8_584 has whole pages as rows, padding included.
FileTensor output_tensor(const CachePages& pages) {
    const core::CacheView& cache = pages.cache;
    FileTensor tensor{.name = "k_cache", .element = Element::kUInt8, .shape = {}, .begin = 0, .bytes = 0};
    if (cache.format == CacheFormat::kBFloat16) tensor.element = Element::kBFloat16;
    if (cache.format == CacheFormat::kFloat16) tensor.element = Element::kFloat16;
    if (cache.format == CacheFormat::kFp8Flat) tensor.element = Element::kFloat8E4m3;
    const auto element = static_cast<std::int64_t>(size_bytes(tensor.element));
    if (cache.format == CacheFormat::kFp8_584) {
        tensor.shape = {cache.num_pages, cache.page_bytes};
    } else {
        tensor.shape = {cache.num_pages, cache.page_size, 1, cache.record_bytes / element};
    }
    tensor.bytes = static_cast<std::size_t>(cache.num_pages * cache.page_bytes);
    return tensor;
}

std::string output_prefix(const std::string& path, const CachePages& pages) {
    const FileTensor tensor = output_tensor(pages);
    if (path.ends_with(".npy")) return npy_prefix(tensor.element, tensor.shape);
    return safetensors_prefix(tensor, {{"flashmla.format", name(pages.cache.format)},
                                       {"flashmla.page_size", std::to_string(pages.cache.page_size)},
                                       {"flashmla.scale", fmt::format("{}", pages.cache.scale)}});
}

std::int64_t count_at_limit(const CachePages& pages) {
    std::int64_t count = 0;
    for (std::int64_t page = 0; page < pages.cache.num_pages; ++page) {
        const PageStats stats = page_stats(pages, page);
        count += stats.latent.at_limit + stats.rope.at_limit;
    }
    return count;
}

// Chunk by chunk, so that no more than a chunk of the destination is in memory.
Converted convert_to(const CacheFile& source, CacheFormat format, const ConvertOptions& options, OutputFile* file,
                     ProgressBar& bar) {
    const core::CacheView& cache = source.cache;
    const double scale = format == CacheFormat::kFp8Flat ? options.to_scale : 1;
    const std::int64_t page_bytes = cache_page_bytes(format, cache.d_qk, cache.page_size);
    const std::int64_t chunk = std::clamp<std::int64_t>(kChunkBytes / page_bytes, 1, cache.num_pages);
    std::vector<std::byte> memory(static_cast<std::size_t>(chunk * page_bytes));
    const int threads = host_threads(options.batch);
    if (file != nullptr) {
        const CachePages whole = pages_over(nullptr, format, cache.d_qk, cache.num_pages, cache.page_size, scale);
        const std::string prefix = output_prefix(options.output, whole);
        file->write(prefix.data(), static_cast<std::int64_t>(prefix.size()));
    }
    Converted done{.format = format, .bytes = cache.num_pages * page_bytes, .error = {}};
    for (std::int64_t first = 0; first < cache.num_pages; first += chunk) {
        const std::int64_t pages = std::min(chunk, cache.num_pages - first);
        std::fill(memory.begin(), memory.end(), std::byte{0});  // padding too, so that equal caches give equal files
        const CachePages from = source.some(first, pages);
        const CachePages to = pages_over(memory.data(), format, cache.d_qk, pages, cache.page_size, scale);
        require(flashmla::convert({.source = from.view(),
                                   .destination = to.view(),
                                   .d_qk = cache.d_qk,
                                   .source_scale = cache.scale,
                                   .destination_scale = scale,
                                   .power_of_two_scales = !options.exact_scales}));
        done.error.add(compare_caches(from, to, 0, 0, threads), 0);
        done.at_limit += count_at_limit(to);
        if (file != nullptr) file->write(memory.data(), pages * page_bytes);
        bar.update(static_cast<double>(first + pages) / static_cast<double>(cache.num_pages));
    }
    return done;
}

bool same_dims(CacheFormat format, std::int64_t d_qk) {
    if (format == CacheFormat::kFp8_656) return d_qk == core::kv656::kDimQk;
    if (format == CacheFormat::kFp8_584) return d_qk == core::kv584::kDimQk;
    return true;
}

Json to_json(const Converted& done) {
    return {{"format", name(done.format)},         {"bytes", done.bytes},
            {"largest_error", done.error.largest}, {"relative_rms_error", done.error.relative()},
            {"values_at_limit", done.at_limit},    {"special_values_changed", done.error.special}};
}

void print_table(const CacheFile& source, const std::vector<Converted>& all) {
    fmt::print("{}: {}, {}\n", source.path, source.describe(),
               bytes_text(static_cast<double>(source.cache.num_pages * source.cache.page_bytes)));
    fmt::print("  {:<9} {:>10} {:>14} {:>15} {:>10} {:>14}\n", "to", "size", "relative RMS", "largest error",
               "at limit", "NaN, inf lost");
    for (const Converted& done : all) {
        fmt::print("  {:<9} {:>10} {:>14.3e} {:>15.5g} {:>10} {:>14}\n", name(done.format),
                   bytes_text(static_cast<double>(done.bytes)), done.error.relative(), done.error.largest,
                   grouped(done.at_limit), grouped(done.error.special));
    }
}

ExitCode convert(const ConvertOptions& options, bool json) {
    const bool writes = !options.output.empty();
    if (writes && options.to.empty()) throw Failure{kExitBadInput, "--to: the format to write is needed"};
    if (writes && !options.output.ends_with(".npy") && !options.output.ends_with(".safetensors")) {
        throw Failure{kExitBadInput, options.output + ": wanted a name that ends in .npy or .safetensors"};
    }
    const CacheFile source = open_cache(options.file);
    std::vector<CacheFormat> formats;
    if (!options.to.empty()) formats.push_back(format_named(options.to));
    if (!formats.empty() && !same_dims(formats[0], source.cache.d_qk)) {
        throw Failure{kExitBadInput,
                      fmt::format("--to {}: it does not hold records of {} values", options.to, source.cache.d_qk)};
    }
    for (const CacheFormat format : kAllCacheFormats) {
        if (options.to.empty() && same_dims(format, source.cache.d_qk)) formats.push_back(format);
    }
    const std::unique_ptr<OutputFile> file = writes ? std::make_unique<OutputFile>(options.output) : nullptr;
    std::vector<Converted> all;
    for (const CacheFormat format : formats) {
        ProgressBar bar(std::string("to ") + name(format), !json);
        all.push_back(convert_to(source, format, options, file.get(), bar));
    }
    if (file != nullptr) file->finish();
    if (!json) {
        print_table(source, all);
        if (writes) fmt::print("  written: {}\n", options.output);
        return kExitOk;
    }
    Json document = json_header("kv convert");
    document["source"] = source.to_json();
    document["output"] = writes ? Json(options.output) : Json(nullptr);
    document["conversions"] = Json::array();
    for (const Converted& done : all) document["conversions"].push_back(to_json(done));
    print_json(document);
    return kExitOk;
}

}  // namespace

void add_kv_convert(CLI::App& kv, Selected& selected) {
    CLI::App* command =
        add_command(kv, selected, "convert", "Write a cache in another format, or report what each format would cost",
                    {"flashmla kv convert cache.npy", "flashmla kv convert cache.npy fp8.npy --to fp8_656",
                     "flashmla kv convert bf16.safetensors flat.safetensors --to fp8_flat --to-scale 0.05"});
    auto options = std::make_shared<ConvertOptions>();
    command->add_option("file", options->file.path, ".npy or .safetensors")->required();
    command->add_option("output", options->output,
                        "The file to write, .npy or .safetensors; without one the errors alone are reported");
    command
        ->add_option("--to", options->to, "Format to convert to [every one of the same d_qk, where nothing is written]")
        ->check(is_format());
    add_cache_file_options(*command, options->file);
    command->add_option("--to-scale", options->to_scale, "What a stored 1.0 of fp8_flat is to be worth")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    command->add_flag("--exact-scales", options->exact_scales,
                      "fp8_656: scales amax / 448 as they are, not rounded up to powers of two");
    add_thread_option(*command, options->batch);
    command->callback(
        [options, &selected] { selected.action = [options, &selected] { return convert(*options, selected.json); }; });
}

}  // namespace flashmla::cli
