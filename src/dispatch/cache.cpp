#include "dispatch/cache.hpp"

#include "backends/cpu/cache_ops.hpp"
#include "dispatch/trace.hpp"

namespace flashmla::dispatch {

Status append(const core::AppendCall& call) { return traced(call, backends::cpu::append); }
Status gather(const core::GatherCall& call) { return traced(call, backends::cpu::gather); }
Status copy_pages(const core::CopyPagesCall& call) { return traced(call, backends::cpu::copy_pages); }
Status convert(const core::ConvertCall& call) { return traced(call, backends::cpu::convert); }

}  // namespace flashmla::dispatch
