// Cache operations on the CPU. Bits do not depend on the number of threads.
#pragma once

#include "core/cache_calls.hpp"
#include "flashmla/status.hpp"

namespace flashmla::backends::cpu {

Status append(const core::AppendCall& call);
Status gather(const core::GatherCall& call);
Status copy_pages(const core::CopyPagesCall& call);
Status convert(const core::ConvertCall& call);

}  // namespace flashmla::backends::cpu
