// `flashmla kv diff`: where two caches differ, in bits and in values.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cli/batch_options.hpp"
#include "cli/kv/cache_file.hpp"
#include "cli/kv/kv.hpp"
#include "cli/kv/page_stats.hpp"
#include "cli/kv/token_diff.hpp"
#include "cli/text.hpp"

namespace flashmla::cli {
namespace {

struct DiffOptions {
    CacheFileOptions a, b;
    double tolerance = -1;  // < 0: bits decide
    std::int64_t show = 10;
    BatchOptions batch;  // threads
};

std::string token_text(const TokenDiff& token) {
    std::string text;
    const auto part = [&text](std::int64_t codes, const char* what) {
        if (codes > 0) text += (text.empty() ? "" : ", ") + count_text(codes, what);
    };
    part(token.bits.values, "latent code");
    part(token.bits.scales, "scale");
    part(token.bits.rope, "rope code");
    part(token.values.special, "NaN or infinite value");
    if (token.values.largest > 0) {
        text += fmt::format("{}value {}: {:.6g} against {:.6g}", text.empty() ? "" : "; ", token.values.index,
                            token.values.a, token.values.b);
    }
    return text;
}

void print_text(const CacheFile& a, const CacheFile& b, const DiffTally& tally) {
    fmt::print("a: {}: {}\nb: {}: {}\n", a.path, a.describe(), b.path, b.describe());
    if (tally.differing == 0) {
        fmt::print("the same in all {}\n", count_text(tally.tokens, "token"));
        return;
    }
    print_line("tokens", fmt::format("{} of {} differ", grouped(tally.differing), grouped(tally.tokens)));
    if (a.cache.format == b.cache.format) {
        const auto part = [](const char* label, std::int64_t codes, std::int64_t tokens) {
            print_line(label, fmt::format("{} in {}", count_text(codes, "code"), count_text(tokens, "token")));
        };
        part("latent", tally.bits.values, tally.in_tokens.values);
        if (core::record_shape(a.cache.format, a.cache.d_qk).group > 0) {
            part("scales", tally.bits.scales, tally.in_tokens.scales);
        }
        if (rope_dims(a.cache) > 0) part("rope", tally.bits.rope, tally.in_tokens.rope);
    } else {
        print_line("bits", "not compared: the formats differ");
    }
    print_line("values", fmt::format("largest difference {:.6g}, RMS of the difference {:.4g} of that of a, {} NaN or "
                                     "infinite in one alone",
                                     tally.largest, tally.relative(), grouped(tally.special)));
    for (const TokenDiff& token : tally.first) {
        fmt::print("  {} (slot {}): {}\n", slot_text(a.cache, token.slot), grouped(token.slot), token_text(token));
    }
    if (tally.differing > static_cast<std::int64_t>(tally.first.size())) {
        fmt::print("  ... the first {} of {}; --show N shows more\n", tally.first.size(), grouped(tally.differing));
    }
}

Json to_json(const CacheFile& a, const CacheFile& b, const DiffTally& tally, bool passed) {
    const auto bits_json = [](const TokenBits& bits) {
        return Json{{"latent", bits.values}, {"scales", bits.scales}, {"rope", bits.rope}};
    };
    Json document = json_header("kv diff");
    document["a"] = a.to_json();
    document["b"] = b.to_json();
    document["tokens"] = tally.tokens;
    document["differing_tokens"] = tally.differing;
    document["codes"] = a.cache.format == b.cache.format ? bits_json(tally.bits) : Json(nullptr);
    document["largest_difference"] = tally.largest;
    document["relative_rms"] = tally.relative();
    document["special_values"] = tally.special;
    document["passed"] = passed;
    document["first"] = Json::array();
    for (const TokenDiff& token : tally.first) {
        document["first"].push_back({{"slot", token.slot},
                                     {"page", token.slot / a.cache.page_size},
                                     {"token", token.slot % a.cache.page_size},
                                     {"codes", bits_json(token.bits)},
                                     {"largest_difference", token.values.largest},
                                     {"value", token.values.index},
                                     {"special_values", token.values.special}});
    }
    return document;
}

ExitCode diff(DiffOptions options, bool json) {
    const CacheFile a = open_cache(options.a);
    options.b.tensor = options.b.tensor.empty() ? options.a.tensor : options.b.tensor;
    const CacheFile b = open_cache(options.b);
    if (a.cache.d_qk != b.cache.d_qk || a.tokens() != b.tokens()) {
        throw Failure{kExitBadInput,
                      fmt::format("nothing to compare token by token: a has {}, b has {}", a.describe(), b.describe())};
    }
    ProgressBar bar("diff", !json);
    const DiffTally tally = compare_caches(a, b, options.tolerance, options.show, host_threads(options.batch), &bar);
    bar.finish();
    const bool passed = options.tolerance < 0 ? tally.differing == 0 : tally.beyond == 0;
    if (json) {
        print_json(to_json(a, b, tally, passed));
    } else {
        print_text(a, b, tally);
    }
    return passed ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_kv_diff(CLI::App& kv, Selected& selected) {
    CLI::App* command = add_command(
        kv, selected, "diff", "Where two caches differ: tokens, parts, bits and values",
        {"flashmla kv diff before.npy after.npy", "flashmla kv diff bf16.safetensors fp8.safetensors --tolerance 0.25",
         "flashmla kv diff a.npy b.npy --format fp16 --show 100 --json"});
    auto options = std::make_shared<DiffOptions>();
    command->add_option("a", options->a.path, "The first file")->required();
    command->add_option("b", options->b.path, "The second file")->required();
    add_cache_file_options(*command, options->a);
    command->add_option("--format-b", options->b.format, "--format of the second file, where it is another one")
        ->check(is_format());
    command->add_option("--tensor-b", options->b.tensor, "--tensor of the second file, where it is another one");
    command->add_option("--scale-b", options->b.scale, "--scale of the second file")->check(CLI::PositiveNumber);
    command->add_option("--tolerance", options->tolerance, "Largest difference of a value that still passes")
        ->check(CLI::NonNegativeNumber);
    command->add_option("--show", options->show, "Differing tokens listed")
        ->check(CLI::Range(0, 1000000))
        ->capture_default_str();
    add_thread_option(*command, options->batch);
    command->callback([options, &selected] {
        if (options->b.format.empty()) options->b.format = options->a.format;
        options->b.page = options->a.page;
        selected.action = [options, &selected] { return diff(*options, selected.json); };
    });
}

}  // namespace flashmla::cli
