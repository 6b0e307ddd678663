// Cache operations to the backend of the cache's device.
#pragma once

#include "core/cache_calls.hpp"
#include "flashmla/status.hpp"

namespace flashmla::dispatch {

Status append(const core::AppendCall& call);
Status gather(const core::GatherCall& call);
Status copy_pages(const core::CopyPagesCall& call);
Status convert(const core::ConvertCall& call);

}  // namespace flashmla::dispatch
