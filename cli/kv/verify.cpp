// `flashmla kv verify`: whether a cache file holds what a cache of its format may hold.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "cli/batch_options.hpp"
#include "cli/kv/cache_file.hpp"
#include "cli/kv/kv.hpp"
#include "cli/kv/page_stats.hpp"
#include "cli/kv/source_rows.hpp"
#include "cli/kv/token_diff.hpp"
#include "cli/parallel.hpp"
#include "cli/text.hpp"
#include "core/kv_quantize.hpp"

namespace flashmla::cli {
namespace {

struct VerifyFileOptions {
    CacheFileOptions file;
    std::string source, source_tensor, source_format;
    bool power_of_two = false, canonical = false, allow_nan = false;
    BatchOptions batch;  // threads
};

// One thing looked at: how often it was wrong, and where first.
struct Finding {
    std::string name;
    std::int64_t checked = 0, wrong = 0;
    std::int64_t first_page = -1, first_token = -1;  // token -1: somewhere in the page

    void add(const Finding& other) {
        checked += other.checked;
        wrong += other.wrong;
        if (first_page >= 0) return;
        first_page = other.first_page;
        first_token = other.first_token;
    }
};

// What a page's values are against the rows they were made from.
struct PageAgainstSource {
    Finding nearest, canonical;
    TokenValues error;  // the page's largest, and its sums
};

// The values a correct writer stores with the scales that are there: the nearest codes.
std::int64_t codes_not_nearest(const CachePages& pages, const core::RecordParts<const std::uint8_t>& parts,
                               const std::vector<float>& row) {
    const core::CacheView& cache = pages.cache;
    const core::RecordShape shape = core::record_shape(cache.format, cache.d_qk);
    const DType stored = cache.format == CacheFormat::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
    const auto differs16 = [&](const std::uint8_t* at, float value) {
        return core::load_unaligned<std::uint16_t>(at) != core::encode_16bit(stored, value);
    };
    std::int64_t wrong = 0;
    for (int i = 0; i < shape.values; ++i) {
        if (!shape.e4m3) {
            wrong += differs16(parts.values + 2 * i, row[i]);
            continue;
        }
        const float scale =
            shape.group > 0 ? core::record_scale(cache.format, parts.scales, i / shape.group) : cache.scale;
        wrong += parts.values[i] != core::quantize(row[i], scale);
    }
    for (int i = 0; i < shape.rope; ++i) wrong += differs16(parts.rope + 2 * i, row[shape.values + i]);
    return wrong;
}

// Whether the token's bytes are those the library's quantiser writes for the row.
bool is_canonical(const CachePages& pages, const core::RecordParts<const std::uint8_t>& parts,
                  const std::vector<float>& row, bool power_of_two, std::vector<std::uint8_t>& scratch) {
    const core::CacheView& cache = pages.cache;
    const core::RecordShape shape = core::record_shape(cache.format, cache.d_qk);
    scratch.assign(static_cast<std::size_t>(cache_page_bytes(cache.format, cache.d_qk, 1)), 0);
    const core::RecordParts<std::uint8_t> made =
        core::record_parts(cache.format, scratch.data(), 0, 1, cache.record_bytes);
    core::encode_record(cache.format, row.data(), cache.d_qk, power_of_two, cache.scale, made);
    const std::int64_t scale_bytes = shape.groups() * (shape.packed ? 4 : 1);
    return std::memcmp(parts.values, made.values, static_cast<std::size_t>(shape.values) * (shape.e4m3 ? 1 : 2)) == 0 &&
           (parts.scales == nullptr || std::memcmp(parts.scales, made.scales, scale_bytes) == 0) &&
           (parts.rope == nullptr || std::memcmp(parts.rope, made.rope, 2 * shape.rope) == 0);
}

PageAgainstSource against_source(const CachePages& pages, const SourceRows& source, std::int64_t page,
                                 bool power_of_two) {
    std::vector<float> row(static_cast<std::size_t>(source.width));
    std::vector<float> stored(row.size());
    std::vector<std::uint8_t> scratch;
    PageAgainstSource result;
    const auto note = [&](Finding& finding, std::int64_t checked, std::int64_t wrong, std::int64_t token) {
        finding.add({.name = {},
                     .checked = checked,
                     .wrong = wrong,
                     .first_page = wrong > 0 ? page : -1,
                     .first_token = wrong > 0 ? token : -1});
    };
    for (std::int64_t token = 0; token < pages.cache.page_size; ++token) {
        const std::int64_t slot = page * pages.cache.page_size + token;
        const core::RecordParts<const std::uint8_t> parts = pages.parts(slot);
        source.decode(slot, row.data());
        pages.decode(slot, stored.data());
        note(result.nearest, source.width, codes_not_nearest(pages, parts, row), token);
        note(result.canonical, 1, is_canonical(pages, parts, row, power_of_two, scratch) ? 0 : 1, token);
        result.error.add(compare_values(row, stored));
    }
    return result;
}

Finding from_page(std::int64_t page, std::int64_t checked, std::int64_t wrong) {
    return {.name = {}, .checked = checked, .wrong = wrong, .first_page = wrong > 0 ? page : -1};
}

std::string where_text(const Finding& finding) {
    std::string text = fmt::format("page {}", finding.first_page);
    if (finding.first_token >= 0) text += fmt::format(" token {}", finding.first_token);
    return text;
}

// What the bytes alone tell.
std::vector<Finding> findings_of_bytes(const std::vector<PageStats>& pages, const VerifyFileOptions& options,
                                       bool scaled) {
    Finding finite{.name = "no NaN and no infinity"};
    Finding legal{.name = "scales positive and finite"};
    Finding powers{.name = "scales powers of two"};
    Finding used{.name = "scales as large as their groups need, not more (a code of 224 or above)"};
    Finding floor{.name = "no scale below the quantiser's smallest"};
    for (std::size_t i = 0; i < pages.size(); ++i) {
        const PageStats& stats = pages[i];
        const auto page = static_cast<std::int64_t>(i);
        // A group whose scale is illegal makes NaN of its values; it is counted once, as a scale.
        const std::int64_t bad = stats.latent.nan + stats.latent.infinite + stats.rope.nan + stats.rope.infinite;
        finite.add(from_page(page, stats.latent.count + stats.rope.count, bad));
        legal.add(from_page(page, stats.scales.count, stats.scales.illegal));
        const std::int64_t legal_scales = stats.scales.count - stats.scales.illegal;
        powers.add(from_page(page, legal_scales, legal_scales - stats.scales.powers_of_two));
        used.add(from_page(page, legal_scales, stats.scales.underused));
        floor.add(from_page(page, legal_scales, stats.scales.below_floor));
    }
    std::vector<Finding> findings;
    if (!options.allow_nan) findings.push_back(finite);
    if (!scaled) return findings;
    findings.push_back(legal);
    if (options.power_of_two) findings.push_back(powers);
    if (options.canonical) {
        findings.push_back(used);
        findings.push_back(floor);
    }
    return findings;
}

struct Verdict {
    std::vector<Finding> findings;
    std::optional<TokenValues> error;
    double relative = 0;

    bool passed() const {
        return std::all_of(findings.begin(), findings.end(), [](const Finding& f) { return f.wrong == 0; });
    }
};

void print_text(const CacheFile& file, const Verdict& verdict) {
    fmt::print("{}: {}\n", file.path, file.describe());
    for (const Finding& finding : verdict.findings) {
        fmt::print(
            "  {}  {} ({} checked{})\n", finding.wrong == 0 ? "PASS" : "FAIL", finding.name, grouped(finding.checked),
            finding.wrong == 0 ? ""
                               : fmt::format(", {} wrong, first in {}", grouped(finding.wrong), where_text(finding)));
    }
    if (verdict.error) {
        fmt::print("  error against the source: largest {:.6g} ({:.6g} stored as {:.6g}), relative RMS {:.4g}\n",
                   verdict.error->largest, verdict.error->a, verdict.error->b, verdict.relative);
    }
}

Json to_json(const CacheFile& file, const Verdict& verdict) {
    Json document = json_header("kv verify");
    document["file"] = file.to_json();
    document["passed"] = verdict.passed();
    document["checks"] = Json::array();
    for (const Finding& finding : verdict.findings) {
        document["checks"].push_back({{"name", finding.name},
                                      {"checked", finding.checked},
                                      {"wrong", finding.wrong},
                                      {"first", finding.wrong > 0 ? Json(where_text(finding)) : Json(nullptr)}});
    }
    document["error"] = nullptr;
    if (verdict.error) {
        document["error"] = {{"largest", verdict.error->largest}, {"relative_rms", verdict.relative}};
    }
    return document;
}

ExitCode verify(const VerifyFileOptions& options, bool json) {
    const CacheFile file = open_cache(options.file);
    const int threads = host_threads(options.batch);
    ProgressBar bar("verify", !json);
    std::vector<PageStats> pages(static_cast<std::size_t>(file.cache.num_pages));
    parallel_items(
        file.cache.num_pages, threads, [&](std::int64_t page) { pages[page] = page_stats(file, page); }, &bar);
    Verdict verdict;
    const bool scaled = core::record_shape(file.cache.format, file.cache.d_qk).group > 0;
    verdict.findings = findings_of_bytes(pages, options, scaled);
    if (!options.source.empty()) {
        const SourceRows source =
            open_source(options.source, options.source_tensor, options.source_format, file.tokens(), file.cache.d_qk);
        PageStats total;
        for (const PageStats& page : pages) total.add(page);
        const bool powers = options.power_of_two || total.scales.powers_of_two == total.scales.count;
        std::vector<PageAgainstSource> results(pages.size());
        parallel_items(
            file.cache.num_pages, threads,
            [&](std::int64_t page) { results[page] = against_source(file, source, page, powers); }, &bar);
        Finding nearest{.name = "codes are the nearest to value / scale"};
        Finding canonical{.name = scaled ? fmt::format("tokens hold the bytes that append writes ({} scales)",
                                                       powers ? "power-of-two" : "exact")
                                         : std::string("tokens hold the bytes that append writes")};
        TokenValues error;
        for (const PageAgainstSource& page : results) {
            nearest.add(page.nearest);
            canonical.add(page.canonical);
            error.add(page.error);
        }
        verdict.findings.push_back(nearest);
        if (options.canonical) verdict.findings.push_back(canonical);
        verdict.error = error;
        verdict.relative = error.relative();
    }
    bar.finish();
    if (json) {
        print_json(to_json(file, verdict));
    } else {
        print_text(file, verdict);
    }
    return verdict.passed() ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_kv_verify(CLI::App& kv, Selected& selected) {
    CLI::App* command = add_command(
        kv, selected, "verify", "Legal scales, no NaN, and the right codes for given values; exit status 1 if not",
        {"flashmla kv verify cache.npy", "flashmla kv verify fp8.npy --source bf16.npy --canonical",
         "flashmla kv verify dump.safetensors --tensor k_cache --power-of-two --json"});
    auto options = std::make_shared<VerifyFileOptions>();
    command->add_option("file", options->file.path, ".npy or .safetensors")->required();
    add_cache_file_options(*command, options->file);
    command->add_option("--source", options->source,
                        "The values that were stored, float32, float16 or bfloat16, a row of d_qk for each token");
    command->add_option("--source-tensor", options->source_tensor,
                        "Which tensor of the source, where it holds several");
    command->add_option("--source-format", options->source_format, "bf16 or fp16, where the source has 16-bit integers")
        ->check(CLI::IsMember({"bf16", "fp16"}));
    command->add_flag("--power-of-two", options->power_of_two, "Demand scales that are powers of two (fp8_656)");
    command->add_flag(
        "--canonical", options->canonical,
        "Demand what this library's quantiser writes: with --source to the byte, otherwise scales that fit "
        "their groups");
    command->add_flag("--allow-nan", options->allow_nan, "Let NaN and infinities pass");
    add_thread_option(*command, options->batch);
    command->callback(
        [options, &selected] { selected.action = [options, &selected] { return verify(*options, selected.json); }; });
}

}  // namespace flashmla::cli
