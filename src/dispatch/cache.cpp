#include "dispatch/cache.hpp"

#include "backends/cpu/cache_ops.hpp"

namespace flashmla::dispatch {

Status append(const core::AppendCall& call) { return backends::cpu::append(call); }
Status gather(const core::GatherCall& call) { return backends::cpu::gather(call); }
Status copy_pages(const core::CopyPagesCall& call) { return backends::cpu::copy_pages(call); }
Status convert(const core::ConvertCall& call) { return backends::cpu::convert(call); }

}  // namespace flashmla::dispatch
