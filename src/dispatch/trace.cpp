#include "dispatch/trace.hpp"

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string_view>

namespace flashmla::dispatch {

bool trace_enabled() {
    static const bool enabled = [] {
        const char* wanted = std::getenv("FLASHMLA_LOG");
        return wanted != nullptr && std::string_view(wanted) == "1";
    }();
    return enabled;
}

void trace(const core::DecodeCall& call, const Status& status, const TraceClock& clock) {
    const DecodePlan& plan = *call.plan;
    const DecodeShape& shape = plan.shape;
    std::ostringstream line;
    line << "flashmla: decode kernel=" << plan.kernel << " device=" << plan.device.arch << " b=" << shape.b
         << " s_q=" << shape.s_q << " h_q=" << shape.h_q << " h_kv=" << shape.h_kv << " d_qk=" << shape.d_qk
         << " d_v=" << shape.d_v << " dtype=" << name(shape.dtype) << " format=" << name(shape.format)
         << " page_size=" << shape.page_size << " max_pages=" << shape.max_pages << " topk=" << shape.topk
         << " extra_topk=" << shape.extra_topk << " causal=" << shape.causal
         << " batch_invariant=" << plan.options.batch_invariant << " workers=" << plan.num_workers
         << " workspace_bytes=" << plan.workspace_bytes << " host_us=" << clock.microseconds()
         << " status=" << (status.ok() ? "ok" : status.message()) << '\n';
    std::cerr << line.str();  // one write, so that lines of concurrent calls do not mix
}

}  // namespace flashmla::dispatch
