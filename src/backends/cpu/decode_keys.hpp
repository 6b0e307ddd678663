// Keys of every cache format to fp32 vectors, as they are loaded into a tile. Templates over Ops (see vector.hpp).
#pragma once

#include "backends/cpu/tile_kernels.hpp"
#include "backends/cpu/vector.hpp"
#include "core/kv_record.hpp"
#include "core/planted_fault.hpp"

namespace flashmla::backends::cpu {

// kGroups groups of kGroup e4m3 values with a scale each, then the rotary part in bf16.
template <class Ops, int kGroups, int kGroup, int kRope, class Sink>
FLASHMLA_INLINE void decode_scaled_key(CacheFormat format, const KeyRows& rows, int k, const Sink& sink) {
    for (int group = 0; group < kGroups; ++group) {
        int place = group;
        if (core::planted(core::PlantedFault::kScaleOfWrongTile)) place = (group + 1) % kGroups;
        const Float<Ops> scale = splat<Ops>(core::record_scale(format, rows.scales[k], place));
        for (int d = group * kGroup; d < (group + 1) * kGroup; d += Ops::kLanes) {
            sink(d, Ops::decode_e4m3(rows.values[k] + d) * scale);
        }
    }
    for (int d = 0; d < kRope; d += Ops::kLanes) {
        int place = d;
        if (core::planted(core::PlantedFault::kRopeHalvesSwapped)) place = (d + kRope / 2) % kRope;
        sink(kGroups * kGroup + d, decode_bf16<Ops>(rows.rope[k] + 2 * place));
    }
}

// Calls sink(d, values) for the values [d, d + lanes) of key k, all d_qk of them.
template <class Ops, class Sink>
FLASHMLA_INLINE void decode_key(const TileShape& shape, const KeyRows& rows, int k, const Sink& sink) {
    namespace v32 = core::kv656;
    namespace v4 = core::kv584;
    const std::uint8_t* values = rows.values[k];
    switch (shape.format) {
        case CacheFormat::kBFloat16:
            for (int d = 0; d < shape.d_qk; d += Ops::kLanes) sink(d, decode_bf16<Ops>(values + 2 * d));
            return;
        case CacheFormat::kFloat16:
            for (int d = 0; d < shape.d_qk; d += Ops::kLanes) sink(d, Ops::decode_fp16(values + 2 * d));
            return;
        case CacheFormat::kFp8Flat:  // the cache's one scale goes into the logits' scale and the result's
            for (int d = 0; d < shape.d_qk; d += Ops::kLanes) sink(d, Ops::decode_e4m3(values + d));
            return;
        case CacheFormat::kFp8_656:
            return decode_scaled_key<Ops, v32::kQuantized / v32::kGroup, v32::kGroup, v32::kRope>(shape.format, rows, k,
                                                                                                  sink);
        case CacheFormat::kFp8_584:
            return decode_scaled_key<Ops, v4::kQuantized / v4::kGroup, v4::kGroup, v4::kRope>(shape.format, rows, k,
                                                                                              sink);
    }
}

}  // namespace flashmla::backends::cpu
