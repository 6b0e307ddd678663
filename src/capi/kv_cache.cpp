#include "flashmla/kv_cache.hpp"

#include "capi/guard.hpp"
#include "capi/reader.hpp"
#include "flashmla/c/kv_cache.h"

namespace flashmla::capi {
namespace {

// 1.0 unless the caller says otherwise.
void read_scale(Reader& read, const char* flag, std::int32_t given, double value, double& scale) {
    bool has_scale = false;
    read.flag(flag, given, has_scale);
    if (has_scale) scale = value;
}

void read_rounding(Reader& read, flashmla_scale_rounding given, bool& power_of_two_scales) {
    bool exact = false;
    read.flag("scale_rounding", given, exact);
    power_of_two_scales = !exact;
}

Status append_tokens(const flashmla_append_args* given, StreamHandle stream) {
    Reader read;
    AppendArgs args;
    const auto c = read.structure("args", given);
    bool halves = false;
    read.flag("rotary_style", c.rotary_style, halves);
    args.rotary_style = halves ? RotaryStyle::kHalves : RotaryStyle::kInterleaved;
    read_rounding(read, c.scale_rounding, args.power_of_two_scales);
    read_scale(read, "has_cache_scale", c.has_cache_scale, c.cache_scale, args.cache_scale);
    read.tensor("latent", c.latent, args.latent);
    read.tensor("rope", c.rope, args.rope);
    read.tensor("cache", c.cache, args.cache);
    read.tensor("slot_ids", c.slot_ids, args.slot_ids);
    read.tensor("positions", c.positions, args.positions);
    read.tensor("cos_sin", c.cos_sin, args.cos_sin);
    return read.status().ok() ? append(args, stream) : read.status();
}

Status gather_rows(const flashmla_gather_args* given, StreamHandle stream) {
    Reader read;
    GatherArgs args;
    const auto c = read.structure("args", given);
    args.d_qk = c.d_qk;
    read_scale(read, "has_cache_scale", c.has_cache_scale, c.cache_scale, args.cache_scale);
    read.tensor("cache", c.cache, args.cache);
    read.tensor("slot_ids", c.slot_ids, args.slot_ids);
    read.tensor("block_table", c.block_table, args.block_table);
    read.tensor("cu_seqlens", c.cu_seqlens, args.cu_seqlens);
    read.tensor("out", c.out, args.out);
    return read.status().ok() ? gather(args, stream) : read.status();
}

Status copy_whole_pages(const flashmla_copy_pages_args* given, StreamHandle stream) {
    Reader read;
    CopyPagesArgs args;
    const auto c = read.structure("args", given);
    read.reserved("args.reserved", c.reserved);
    args.d_qk = c.d_qk;
    read.tensor("source", c.source, args.source);
    read.tensor("destination", c.destination, args.destination);
    read.tensor("page_pairs", c.page_pairs, args.page_pairs);
    return read.status().ok() ? copy_pages(args, stream) : read.status();
}

Status convert_cache(const flashmla_convert_args* given, StreamHandle stream) {
    Reader read;
    ConvertArgs args;
    const auto c = read.structure("args", given);
    args.d_qk = c.d_qk;
    read_rounding(read, c.scale_rounding, args.power_of_two_scales);
    read_scale(read, "has_source_scale", c.has_source_scale, c.source_scale, args.source_scale);
    read_scale(read, "has_destination_scale", c.has_destination_scale, c.destination_scale, args.destination_scale);
    read.tensor("source", c.source, args.source);
    read.tensor("destination", c.destination, args.destination);
    return read.status().ok() ? convert(args, stream) : read.status();
}

}  // namespace

extern "C" {

flashmla_status flashmla_append(const flashmla_append_args* args, flashmla_stream stream) {
    return guarded([&] { return append_tokens(args, stream); });
}

flashmla_status flashmla_gather(const flashmla_gather_args* args, flashmla_stream stream) {
    return guarded([&] { return gather_rows(args, stream); });
}

flashmla_status flashmla_copy_pages(const flashmla_copy_pages_args* args, flashmla_stream stream) {
    return guarded([&] { return copy_whole_pages(args, stream); });
}

flashmla_status flashmla_convert(const flashmla_convert_args* args, flashmla_stream stream) {
    return guarded([&] { return convert_cache(args, stream); });
}

}  // extern "C"

}  // namespace flashmla::capi
