#include <string>

#include "api/cache_check.hpp"
#include "core/checked.hpp"
#include "device/cpu.hpp"
#include "dispatch/cache.hpp"
#include "flashmla/kv_cache.hpp"

namespace flashmla {
namespace {

Status check_choice(const GatherArgs& args) {
    const bool slots = args.slot_ids.rank != 0;
    const bool table = args.block_table.rank != 0;
    const bool lengths = args.cu_seqlens.rank != 0;
    if (slots && !table && !lengths) return {};
    if (!slots && table && lengths) return {};
    std::string got;
    if (slots) got += ", slot_ids";
    if (table) got += ", block_table";
    if (lengths) got += ", cu_seqlens";
    return invalid_argument("slot_ids, block_table, cu_seqlens: got " + (got.empty() ? "none" : got.substr(2)) +
                            ", wanted slot_ids alone, or block_table with cu_seqlens");
}

Status check_table(const GatherArgs& args, core::GatherCall& call) {
    TensorView table = args.block_table;
    TensorView cu = args.cu_seqlens;
    if (Status status = api::check_rank("block_table", table, "(b, max_pages)", 2); !status.ok()) return status;
    if (Status status = api::check_rank("cu_seqlens", cu, "(b + 1,)", 1); !status.ok()) return status;
    if (Status status = api::check_shape("block_table", table, {{"b"}, {"max_pages"}}); !status.ok()) return status;
    call.requests = table.shape[0];
    // No tensor has as many elements as the largest b claims; the memory check says so.
    const std::int64_t ends = core::checked_sum(call.requests, 1).value_or(call.requests);
    if (Status status = api::check_shape("cu_seqlens", cu, {{"b + 1", ends}}); !status.ok()) return status;
    if (Status status = api::check_dtype("block_table", table, DType::kInt32, ""); !status.ok()) return status;
    if (Status status = api::check_dtype("cu_seqlens", cu, DType::kInt32, ""); !status.ok()) return status;
    if (Status status = api::check_memory("block_table", table, {}); !status.ok()) return status;
    if (Status status = api::check_memory("cu_seqlens", cu, {}); !status.ok()) return status;
    call.block_table = static_cast<const std::int32_t*>(table.data);
    call.table_stride = table.stride[0];
    call.cu_seqlens = static_cast<const std::int32_t*>(cu.data);
    return {};
}

Status check_slots(const core::GatherCall& call) {
    const std::int64_t slots = call.cache.num_pages * call.cache.page_size;
    for (std::int64_t i = 0; i < call.rows; ++i) {
        if (call.slots[i] < slots) continue;
        return api::index_complaint("slot_ids", call.slots[i], std::to_string(i), slots, "num_pages * page_size");
    }
    return {};
}

Status check_lengths(const core::GatherCall& call, std::int64_t max_pages) {
    const std::int32_t* cu = call.cu_seqlens;
    if (cu[0] != 0 || cu[call.requests] != call.rows) {
        return invalid_argument("cu_seqlens: got " + std::to_string(cu[0]) + " to " +
                                std::to_string(cu[call.requests]) + ", wanted 0 to " + std::to_string(call.rows) +
                                ", the rows of out");
    }
    for (std::int64_t i = 0; i < call.requests; ++i) {
        const std::int64_t length = std::int64_t{cu[i + 1]} - cu[i];
        // Divided, not multiplied: max_pages * page_size may not fit.
        const std::int64_t used = length <= 0 ? 0 : (length - 1) / call.cache.page_size + 1;
        if (length < 0 || used > max_pages) {
            return invalid_argument("cu_seqlens: got a difference of " + std::to_string(length) + " for request " +
                                    std::to_string(i) + ", wanted 0 to max_pages * page_size, with " +
                                    std::to_string(max_pages) + " pages of " + std::to_string(call.cache.page_size));
        }
        for (std::int64_t page = 0; page < used; ++page) {
            const std::int32_t id = call.block_table[i * call.table_stride + page];
            if (id >= 0 && id < call.cache.num_pages) continue;
            return invalid_argument("block_table: got page " + std::to_string(id) + " at (" + std::to_string(i) + ", " +
                                    std::to_string(page) + ") within the " + std::to_string(length) +
                                    " tokens of the request, wanted 0 to " + std::to_string(call.cache.num_pages - 1));
        }
    }
    return {};
}

}  // namespace

Status gather(const GatherArgs& args, StreamHandle) {
    if (Status status = check_choice(args); !status.ok()) return status;
    Result<core::CacheView> cache = api::check_cache(args.cache, args.d_qk, {.scale = args.cache_scale});
    if (!cache.ok()) return cache.status();
    core::GatherCall call;
    call.cache = cache.value();
    if (Status status = api::check_rank("out", args.out, "(n, d_qk)", 2); !status.ok()) return status;
    Result<core::RowsView> out =
        api::check_rows("out", args.out, {{"n"}, {"d_qk", args.d_qk}}, api::Overlap::kForbidden);
    if (!out.ok()) return out.status();
    call.out = out.value();
    call.rows = args.out.shape[0];
    const bool by_slots = args.slot_ids.rank != 0;
    if (by_slots) {
        Result<core::IndexView> slots = api::check_index("slot_ids", args.slot_ids, {"n", call.rows});
        if (!slots.ok()) return slots.status();
        call.slots = slots.value();
    } else if (Status status = check_table(args, call); !status.ok()) {
        return status;
    }
    if (Status status = api::check_devices({{"slot_ids", args.slot_ids},
                                            {"block_table", args.block_table},
                                            {"cu_seqlens", args.cu_seqlens},
                                            {"out", args.out}},
                                           args.cache.device, "cache");
        !status.ok()) {
        return status;
    }
    if (Status status = api::check_cache_device("gather", args.cache.device); !status.ok()) return status;
    const Status contents = by_slots ? check_slots(call) : check_lengths(call, args.block_table.shape[1]);
    if (!contents.ok() || call.rows == 0) return contents;
    call.max_threads = device::usable_threads();
    return dispatch::gather(call);
}

}  // namespace flashmla
