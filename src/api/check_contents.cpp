#include <cstdint>
#include <string>

#include "api/check.hpp"
#include "core/host_device.hpp"

namespace flashmla::api {

Status check_host_contents(const CheckedDecode& checked) {
    const core::DecodeCall& call = checked.call;
    const DecodeShape& shape = checked.shape;
    if (shape.topk > 0) return {};  // any id and any number of them is legal
    const std::int64_t capacity = core::key_capacity(shape);
    for (std::int64_t i = 0; i < shape.b; ++i) {
        // In 64 bits: wild cumulative lengths must not overflow before they are refused.
        const std::int64_t length = call.lengths_are_cumulative ? std::int64_t{call.lengths[i + 1]} - call.lengths[i]
                                                                : std::int64_t{call.lengths[i]};
        if (length < 0 || length > capacity) {
            return invalid_argument(
                (call.lengths_are_cumulative ? "cu_seqlens_k: got a difference of " : "cache_seqlens: got ") +
                std::to_string(length) + " for request " + std::to_string(i) + ", wanted 0 to " +
                std::to_string(capacity) + " = max_pages * page_size");
        }
        const std::int32_t* pages = call.block_table + i * call.strides.table_b;
        const std::int64_t used = core::ceil_div(length, shape.page_size);
        for (std::int64_t page = 0; page < used; ++page) {
            if (pages[page] >= 0 && pages[page] < call.num_pages) continue;
            return invalid_argument("block_table: got page " + std::to_string(pages[page]) + " at (" +
                                    std::to_string(i) + ", " + std::to_string(page) + ") within the " +
                                    std::to_string(length) + " tokens of the request, wanted 0 to " +
                                    std::to_string(call.num_pages - 1));
        }
    }
    return {};
}

}  // namespace flashmla::api
