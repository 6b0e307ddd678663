// Asking, without tensors, whether this build can do something on a device, and if not, why not.
#pragma once

#include "flashmla/cache_format.hpp"
#include "flashmla/catalog.hpp"
#include "flashmla/device.hpp"
#include "flashmla/status.hpp"
#include "flashmla/types.hpp"

namespace flashmla {

struct CapabilityQuery {
    Operation operation = Operation::kDecode;
    DType dtype = DType::kBFloat16;               // of the queries (of the rows, for cache operations)
    CacheFormat format = CacheFormat::kBFloat16;  // of the cache; ignored by operations without one
    HeadDims dims{576, 512};                      // ignored by operations without heads
    bool sparse = false;                          // decode by indices instead of a block table
    std::int64_t page_size = 64;                  // decode
};

// Success = yes. kUnsupported: the reason, as a caller can act on it (device, architecture, dtype, dims, format, page).
Status check_capability(const CapabilityQuery& query, const DeviceInfo& device);

}  // namespace flashmla
