#include <string>

#include "api/cache_check.hpp"
#include "device/cpu.hpp"
#include "dispatch/cache.hpp"
#include "flashmla/kv_cache.hpp"

namespace flashmla {
namespace {

Status check_ranks(const AppendArgs& args) {
    if (Status status = api::check_rank("latent", args.latent, "(n, d_qk - d_rope)", 2); !status.ok()) return status;
    if (args.rope.rank != 0) {
        if (Status status = api::check_rank("rope", args.rope, "(n, d_rope)", 2); !status.ok()) return status;
    }
    if ((args.positions.rank == 0) != (args.cos_sin.rank == 0)) {
        return invalid_argument(std::string("positions, cos_sin: got only ") +
                                (args.cos_sin.rank == 0 ? "positions" : "cos_sin") + ", wanted both or neither");
    }
    if (args.cos_sin.rank == 0) return {};
    if (args.rope.rank == 0) {
        return invalid_argument("positions, cos_sin: got a rotary embedding without rope, wanted the part it rotates");
    }
    return api::check_rank("cos_sin", args.cos_sin, "(max_position, d_rope)", 2);
}

// Packed records fix how their values divide; the others take any division.
Status check_widths(CacheFormat format, std::int64_t latent, std::int64_t rope) {
    const core::RecordShape shape = core::record_shape(format, 0);
    if (shape.group == 0 || (latent == shape.values && rope == shape.rope)) return {};
    return invalid_argument("latent, rope: got widths " + std::to_string(latent) + " and " + std::to_string(rope) +
                            ", wanted " + std::to_string(shape.values) + " and " + std::to_string(shape.rope) +
                            " for a cache in " + name(format));
}

Status check_rotary(const AppendArgs& args, core::AppendCall& call) {
    if (args.positions.rank == 0) return {};
    const std::int64_t d_rope = args.rope.shape[1];
    if (d_rope % 2 != 0) {
        return invalid_argument("rope: got width " + std::to_string(d_rope) +
                                " with a rotary embedding, wanted an even one");
    }
    Result<core::IndexView> positions = api::check_index("positions", args.positions, {"n", call.tokens});
    if (!positions.ok()) return positions.status();
    if (Status status = api::check_dtype("cos_sin", args.cos_sin, DType::kFloat32, ""); !status.ok()) return status;
    Result<core::RowsView> cos_sin =
        api::check_rows("cos_sin", args.cos_sin, {{"max_position"}, {"d_rope", d_rope}}, api::Overlap::kAllowed);
    if (!cos_sin.ok()) return cos_sin.status();
    if (args.rotary_style != RotaryStyle::kInterleaved && args.rotary_style != RotaryStyle::kHalves) {
        return invalid_argument("rotary_style: got " + std::to_string(static_cast<int>(args.rotary_style)) +
                                ", wanted interleaved (0) or halves (1)");
    }
    call.positions = positions.value();
    call.cos_sin = cos_sin.value();
    call.style = args.rotary_style;
    return {};
}

Status check_contents(const AppendArgs& args, const core::AppendCall& call) {
    const std::int64_t slots = call.cache.num_pages * call.cache.page_size;
    for (std::int64_t i = 0; i < call.tokens; ++i) {
        const std::int64_t slot = call.slots[i];
        if (slot < 0) continue;
        if (slot >= slots) {
            return api::index_complaint("slot_ids", slot, std::to_string(i), slots, "num_pages * page_size");
        }
        if (call.positions.data == nullptr) continue;
        const std::int64_t position = call.positions[i];
        if (position < 0 || position >= args.cos_sin.shape[0]) {
            return invalid_argument("positions: got " + std::to_string(position) + " at " + std::to_string(i) +
                                    ", wanted 0 to " + std::to_string(args.cos_sin.shape[0] - 1) +
                                    ", the rows of cos_sin");
        }
    }
    return {};
}

}  // namespace

Status append(const AppendArgs& args, StreamHandle) {
    if (Status status = check_ranks(args); !status.ok()) return status;
    const std::int64_t latent_width = args.latent.shape[1];
    const std::int64_t rope_width = args.rope.rank == 0 ? 0 : args.rope.shape[1];
    if (latent_width < 0 || latent_width > core::kMaxRecordValues || rope_width < 0 ||
        rope_width > core::kMaxRecordValues) {
        return invalid_argument("latent, rope: got widths " + std::to_string(latent_width) + " and " +
                                std::to_string(rope_width) + ", wanted 0 to " + std::to_string(core::kMaxRecordValues));
    }
    Result<core::CacheView> cache = api::check_cache(args.cache, latent_width + rope_width,
                                                     {.overlap = api::Overlap::kForbidden, .scale = args.cache_scale});
    if (!cache.ok()) return cache.status();

    core::AppendCall call;
    call.cache = cache.value();
    if (Status status = check_widths(call.cache.format, latent_width, rope_width); !status.ok()) return status;
    Result<core::RowsView> latent =
        api::check_rows("latent", args.latent, {{"n"}, {"d_qk - d_rope"}}, api::Overlap::kAllowed);
    if (!latent.ok()) return latent.status();
    call.latent = latent.value();
    call.tokens = args.latent.shape[0];
    call.power_of_two = args.power_of_two_scales;
    if (args.rope.rank != 0) {
        if (Status status = api::check_dtype("rope", args.rope, args.latent.dtype, ", latent's dtype"); !status.ok()) {
            return status;
        }
        Result<core::RowsView> rope =
            api::check_rows("rope", args.rope, {{"n", call.tokens}, {"d_rope"}}, api::Overlap::kAllowed);
        if (!rope.ok()) return rope.status();
        call.rope = rope.value();
    }
    Result<core::IndexView> slots = api::check_index("slot_ids", args.slot_ids, {"n", call.tokens});
    if (!slots.ok()) return slots.status();
    call.slots = slots.value();
    if (Status status = check_rotary(args, call); !status.ok()) return status;
    if (Status status = api::check_devices({{"latent", args.latent},
                                            {"rope", args.rope},
                                            {"slot_ids", args.slot_ids},
                                            {"positions", args.positions},
                                            {"cos_sin", args.cos_sin}},
                                           args.cache.device, "cache");
        !status.ok()) {
        return status;
    }
    if (Status status = api::check_cache_device("append", args.cache.device); !status.ok()) return status;
    if (Status status = check_contents(args, call); !status.ok()) return status;
    if (call.tokens == 0) return {};
    call.max_threads = device::usable_threads();
    return dispatch::append(call);
}

}  // namespace flashmla
