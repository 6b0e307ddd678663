// `flashmla kv inspect`: what a file of cache pages holds.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "cli/batch_options.hpp"
#include "cli/kv/cache_file.hpp"
#include "cli/kv/kv.hpp"
#include "cli/kv/page_stats.hpp"
#include "cli/parallel.hpp"
#include "cli/text.hpp"

namespace flashmla::cli {
namespace {

constexpr int kBarWidth = 40;

struct InspectOptions {
    CacheFileOptions file;
    std::int64_t pages = 5;
    BatchOptions batch;  // threads
};

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json values_json(const ValueStats& stats) {
    return {{"count", stats.count},         {"nan", stats.nan},           {"inf", stats.infinite},
            {"zero", stats.zero},           {"at_limit", stats.at_limit}, {"min", number(stats.smallest)},
            {"max", number(stats.largest)}, {"rms", stats.rms()}};
}

Json scales_json(const ScaleStats& stats) {
    Json exponents = Json::object();
    for (int i = 0; i < 256; ++i) {
        if (stats.exponents[i] > 0) exponents[std::to_string(i - 127)] = stats.exponents[i];
    }
    return {{"count", stats.count},
            {"illegal", stats.illegal},
            {"powers_of_two", stats.powers_of_two},
            {"at_floor", stats.at_floor},
            {"below_floor", stats.below_floor},
            {"underused", stats.underused},
            {"min", number(stats.smallest)},
            {"max", stats.largest},
            {"exponents", exponents}};
}

Json page_json(const CacheFile& file, const PageStats& stats) {
    Json json = {{"tokens", stats.tokens},
                 {"zero_tokens", stats.zero_tokens},
                 {"ones_tokens", stats.ones_tokens},
                 {"first_bad_slot", stats.first_bad < 0 ? Json(nullptr) : Json(stats.first_bad)},
                 {"latent", values_json(stats.latent)}};
    if (rope_dims(file.cache) > 0) json["rope"] = values_json(stats.rope);
    if (stats.scales.count > 0) json["scales"] = scales_json(stats.scales);
    return json;
}

std::string bad_text(const PageStats& stats) {
    std::string text;
    const auto add = [&text](std::int64_t count, const char* what) {
        if (count > 0) text += (text.empty() ? "" : ", ") + count_text(count, what);
    };
    add(stats.latent.nan + stats.rope.nan, "NaN value");
    add(stats.latent.infinite + stats.rope.infinite, "infinite value");
    add(stats.scales.illegal, "illegal scale");
    return text;
}

void print_values(const char* part, const ValueStats& stats) {
    fmt::print("  {:<8} {:>13} {:>9} {:>9} {:>11} {:>11} {:>12.5g} {:>12.5g} {:>11.4g}\n", part, grouped(stats.count),
               grouped(stats.nan), grouped(stats.infinite), grouped(stats.zero), grouped(stats.at_limit),
               stats.smallest, stats.largest, stats.rms());
}

void print_scales(const ScaleStats& scales) {
    const std::int64_t legal = scales.count - scales.illegal;
    const std::string powers = scales.powers_of_two == legal ? "all" : grouped(scales.powers_of_two);
    fmt::print(
        "\n  {}: {:.5g} to {:.5g}; {} illegal, {} of the legal ones powers of two, {} at the quantiser's floor\n",
        count_text(scales.count, "scale"), scales.smallest, scales.largest, grouped(scales.illegal), powers,
        grouped(scales.at_floor));
    if (scales.below_floor + scales.underused > 0) {
        fmt::print(
            "  not as the quantiser writes them: {} below the floor, {} too large for their group (no code reaches "
            "224 of 448)\n",
            grouped(scales.below_floor), grouped(scales.underused));
    }
    const std::int64_t most = *std::max_element(scales.exponents.begin(), scales.exponents.end());
    for (int i = 0; i < 256; ++i) {
        const std::int64_t count = scales.exponents[i];
        if (count == 0) continue;
        fmt::print("    2^{:<4} {:>11}  {:#<{}}\n", i - 127, grouped(count), "", (count * kBarWidth + most - 1) / most);
    }
}

// Pages with something bad first, then those with the largest values.
std::vector<std::int64_t> pages_that_stand_out(const std::vector<PageStats>& pages, std::int64_t most) {
    std::vector<std::int64_t> order(pages.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
    const auto shown = order.begin() + std::min<std::int64_t>(most, static_cast<std::int64_t>(order.size()));
    std::partial_sort(order.begin(), shown, order.end(), [&](std::int64_t a, std::int64_t b) {
        const auto key = [&](std::int64_t i) {
            return std::tuple(-pages[i].bad(), -std::max(pages[i].latent.amax(), pages[i].rope.amax()), i);
        };
        return key(a) < key(b);
    });
    order.erase(shown, order.end());
    return order;
}

void print_text(const CacheFile& file, const PageStats& total, const std::vector<PageStats>& pages,
                std::int64_t shown) {
    const core::CacheView& cache = file.cache;
    const std::int64_t dead = dead_bytes(cache) * cache.num_pages;
    fmt::print("{}: {}\n", file.path, file.describe());
    print_line("format", fmt::format("from {} ({})", file.why, file.tensor.describe()));
    print_line("tokens", fmt::format("{}: {} written, {} all zero (not counted below), {} all 0xFF",
                                     grouped(total.tokens), grouped(total.tokens - total.zero_tokens),
                                     grouped(total.zero_tokens), grouped(total.ones_tokens)));
    print_line("bytes",
               fmt::format("{} in pages of {}; {} of them dead (padding)", grouped(cache.num_pages * cache.page_bytes),
                           grouped(cache.page_bytes), grouped(dead)));
    fmt::print("\n  {:<8} {:>13} {:>9} {:>9} {:>11} {:>11} {:>12} {:>12} {:>11}\n", "part", "values", "NaN", "infinite",
               "zero", "at limit", "min", "max", "RMS");
    print_values("latent", total.latent);
    if (rope_dims(cache) > 0) print_values("rope", total.rope);
    if (total.scales.count > 0) print_scales(total.scales);
    if (total.bad() > 0) fmt::print("\n  first bad value: {}\n", slot_text(cache, total.first_bad));
    if (shown == 0) return;
    fmt::print("\n  {:>10} {:>9} {:>9} {:>13} {:>13}  {}\n", "page", "written", "at limit", "latent max", "rope max",
               "bad");
    for (const std::int64_t page : pages_that_stand_out(pages, shown)) {
        const PageStats& stats = pages[page];
        fmt::print("  {:>10} {:>9} {:>9} {:>13.5g} {:>13.5g}  {}\n", grouped(page),
                   grouped(stats.tokens - stats.zero_tokens), grouped(stats.latent.at_limit + stats.rope.at_limit),
                   stats.latent.amax(), stats.rope.amax(), bad_text(stats));
    }
    if (static_cast<std::int64_t>(pages.size()) > shown) {
        fmt::print("  ... the {} that stand out, of {}; --pages N shows more, --json all\n", grouped(shown),
                   count_text(cache.num_pages, "page"));
    }
}

ExitCode inspect(const InspectOptions& options, bool json) {
    const CacheFile file = open_cache(options.file);
    std::vector<PageStats> pages(static_cast<std::size_t>(file.cache.num_pages));
    ProgressBar bar("inspect", !json);
    parallel_items(
        file.cache.num_pages, host_threads(options.batch),
        [&](std::int64_t page) { pages[page] = page_stats(file, page); }, &bar);
    bar.finish();
    PageStats total;
    for (const PageStats& page : pages) total.add(page);
    if (!json) {
        print_text(file, total, pages, options.pages);
        return kExitOk;
    }
    Json document = json_header("kv inspect");
    document["file"] = file.to_json();
    document["dead_bytes"] = dead_bytes(file.cache) * file.cache.num_pages;
    document["total"] = page_json(file, total);
    document["pages"] = Json::array();
    for (const PageStats& page : pages) document["pages"].push_back(page_json(file, page));
    print_json(document);
    return kExitOk;
}

}  // namespace

void add_kv_inspect(CLI::App& kv, Selected& selected) {
    CLI::App* command =
        add_command(kv, selected, "inspect", "Format, value ranges, scales, NaN and dead bytes of a cache",
                    {"flashmla kv inspect cache.npy", "flashmla kv inspect dump.safetensors --tensor layers.3.k_cache",
                     "flashmla kv inspect codes.npy --format bf16 --json"});
    auto options = std::make_shared<InspectOptions>();
    command->add_option("file", options->file.path, ".npy or .safetensors")->required();
    add_cache_file_options(*command, options->file);
    command
        ->add_option("--pages", options->pages, "Pages listed: those with something bad, then those with large values")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40))
        ->capture_default_str();
    add_thread_option(*command, options->batch);
    command->callback(
        [options, &selected] { selected.action = [options, &selected] { return inspect(*options, selected.json); }; });
}

}  // namespace flashmla::cli
