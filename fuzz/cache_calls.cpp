// Legal calls of the cache operations, to be spoilt: every format, small pages.
#include <memory>

#include "fuzz/c_call.hpp"

namespace flashmla::fuzz {
namespace {

struct Format {
    flashmla_dtype dtype;
    std::int64_t record, latent, rope;
};

constexpr Format kFormats[] = {
    {FLASHMLA_BFLOAT16, 48, 32, 16}, {FLASHMLA_FLOAT16, 48, 48, 0},  {FLASHMLA_FLOAT8_E4M3, 48, 40, 8},
    {FLASHMLA_UINT8, 656, 512, 64},  {FLASHMLA_UINT8, 584, 448, 64},
};
constexpr flashmla_dtype kRowDtypes[] = {FLASHMLA_BFLOAT16, FLASHMLA_FLOAT16, FLASHMLA_FLOAT32};
constexpr flashmla_dtype kIdDtypes[] = {FLASHMLA_INT32, FLASHMLA_INT64};
constexpr std::int64_t kPages = 3, kPageSize = 2, kSlots = kPages * kPageSize;

std::int64_t d_qk(const Format& format) { return format.latent + format.rope; }

struct AppendCall : CCall {
    flashmla_append_args args;

    explicit AppendCall(Input& input) {
        const Format format = input.pick(kFormats);
        const flashmla_dtype rows = input.pick(kRowDtypes);
        const auto n = static_cast<std::int64_t>(input.below(5));
        FLASHMLA_INIT(&args);
        args.rotary_style = static_cast<std::int32_t>(input.below(2));
        args.scale_rounding = static_cast<std::int32_t>(input.below(2));
        struct_size(args.struct_size);
        integer(args.rotary_style);
        integer(args.scale_rounding);
        integer(args.has_cache_scale);
        real(args.cache_scale);
        tensor("latent", args.latent, rows, {n, format.latent});
        if (format.rope > 0) tensor("rope", args.rope, rows, {n, format.rope});
        tensor("cache", args.cache, format.dtype, {kPages, kPageSize, 1, format.record}, Role::kWrittenCache);
        tensor("slot_ids", args.slot_ids, input.pick(kIdDtypes), {n}, Role::kInput, kSlots);
        if (format.rope == 0 || input.below(2) == 0) return;
        tensor("positions", args.positions, input.pick(kIdDtypes), {n}, Role::kInput, 8);
        tensor("cos_sin", args.cos_sin, FLASHMLA_FLOAT32, {8, format.rope});
    }

    flashmla_status call(Input&) override { return flashmla_append(&args, nullptr); }
};

struct GatherCall : CCall {
    flashmla_gather_args args;

    explicit GatherCall(Input& input) {
        const Format format = input.pick(kFormats);
        const auto n = static_cast<std::int64_t>(input.below(5));
        FLASHMLA_INIT(&args);
        args.d_qk = d_qk(format);
        struct_size(args.struct_size);
        integer(args.has_cache_scale);
        integer(args.d_qk);
        real(args.cache_scale);
        tensor("cache", args.cache, format.dtype, {kPages, kPageSize, 1, format.record}, Role::kCache);
        if (input.below(2) == 0) {
            tensor("slot_ids", args.slot_ids, input.pick(kIdDtypes), {n}, Role::kInput, kSlots);
            tensor("out", args.out, input.pick(kRowDtypes), {n, d_qk(format)}, Role::kOutput);
            return;
        }
        const auto b = static_cast<std::int64_t>(input.below(4));
        tensor("block_table", args.block_table, FLASHMLA_INT32, {b, 2}, Role::kInput, kPages);
        tensor("cu_seqlens", args.cu_seqlens, FLASHMLA_INT32, {b + 1}, Role::kInput, kSlots);  // a token each
        tensor("out", args.out, input.pick(kRowDtypes), {b, d_qk(format)}, Role::kOutput);
    }

    flashmla_status call(Input&) override { return flashmla_gather(&args, nullptr); }
};

struct CopyPagesCall : CCall {
    flashmla_copy_pages_args args;

    explicit CopyPagesCall(Input& input) {
        const Format format = input.pick(kFormats);
        FLASHMLA_INIT(&args);
        args.d_qk = d_qk(format);
        struct_size(args.struct_size);
        integer(args.d_qk);
        tensor("source", args.source, format.dtype, {kPages, kPageSize, 1, format.record}, Role::kCache);
        tensor("destination", args.destination, format.dtype, {kPages, kPageSize, 1, format.record},
               Role::kWrittenCache);
        tensor("page_pairs", args.page_pairs, input.pick(kIdDtypes), {1, 2}, Role::kInput, kPages);  // page 0 to page 1
    }

    flashmla_status call(Input&) override { return flashmla_copy_pages(&args, nullptr); }
};

struct ConvertCall : CCall {
    flashmla_convert_args args;

    explicit ConvertCall(Input& input) {
        // Formats that hold the same number of values.
        const Format sets[][3] = {
            {{FLASHMLA_BFLOAT16, 48, 48, 0}, {FLASHMLA_FLOAT16, 48, 48, 0}, {FLASHMLA_FLOAT8_E4M3, 48, 48, 0}},
            {{FLASHMLA_BFLOAT16, 576, 576, 0}, {FLASHMLA_UINT8, 656, 512, 64}, {FLASHMLA_UINT8, 576, 576, 0}},
            {{FLASHMLA_FLOAT16, 512, 512, 0}, {FLASHMLA_UINT8, 584, 448, 64}, {FLASHMLA_UINT8, 512, 512, 0}},
        };
        const auto& set = sets[input.below(3)];
        const Format from = input.pick(set), to = input.pick(set);
        FLASHMLA_INIT(&args);
        args.d_qk = d_qk(from);
        args.scale_rounding = static_cast<std::int32_t>(input.below(2));
        struct_size(args.struct_size);
        integer(args.scale_rounding);
        integer(args.has_source_scale);
        integer(args.has_destination_scale);
        integer(args.d_qk);
        real(args.source_scale);
        real(args.destination_scale);
        tensor("source", args.source, from.dtype, {kPages, kPageSize, 1, from.record}, Role::kCache);
        tensor("destination", args.destination, to.dtype, {kPages, kPageSize, 1, to.record}, Role::kWrittenCache);
    }

    flashmla_status call(Input&) override { return flashmla_convert(&args, nullptr); }
};

}  // namespace

std::unique_ptr<CCall> make_append(Input& input) { return std::make_unique<AppendCall>(input); }
std::unique_ptr<CCall> make_gather(Input& input) { return std::make_unique<GatherCall>(input); }
std::unique_ptr<CCall> make_copy_pages(Input& input) { return std::make_unique<CopyPagesCall>(input); }
std::unique_ptr<CCall> make_convert(Input& input) { return std::make_unique<ConvertCall>(input); }

}  // namespace flashmla::fuzz
