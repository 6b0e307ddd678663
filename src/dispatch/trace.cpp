#include "dispatch/trace.hpp"

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string_view>

#include "core/cpu_isa.hpp"
#include "plan/catalog.hpp"

namespace flashmla::dispatch {
namespace {

// "decode kernel=cpu_decode_dense device=avx2", then pairs of names and values.
class Facts {
public:
    Facts(Operation operation, std::string_view kernel, std::string_view device) {
        text_ << name(operation) << " kernel=" << kernel << " device=" << device;
    }
    // Of an operation without a plan: its CPU kernel, on the path that it takes.
    explicit Facts(KernelId id) : Facts(plan::kernel_info(id).operation, plan::kernel_info(id).name, cpu_path()) {}

    template <class T>
    Facts& add(const char* fact, const T& value) {
        text_ << ' ' << fact << '=' << value;
        return *this;
    }
    Facts& add_plan(const PlanOptions& options, int workers, std::size_t workspace_bytes) {
        return add("batch_invariant", options.batch_invariant)
            .add("workers", workers)
            .add("workspace_bytes", workspace_bytes);
    }
    // "source_format=bf16 source_pages=4 source_page_size=64"
    Facts& add_cache(const std::string& prefix, const core::CacheView& cache) {
        return add((prefix + "format").c_str(), name(cache.format))
            .add((prefix + "pages").c_str(), cache.num_pages)
            .add((prefix + "page_size").c_str(), cache.page_size);
    }
    std::string text() const { return text_.str(); }

private:
    static std::string_view cpu_path() {
        const Result<core::CpuIsa> isa = core::selected_cpu_isa();
        return isa.ok() ? name(isa.value()) : "none";
    }

    std::ostringstream text_;
};

std::string prefill_facts(const PrefillPlan& plan) {
    const PrefillShape& shape = plan.shape;
    Facts facts(shape.operation, plan.kernel, plan.device.arch);
    facts.add("b", shape.b)
        .add("total_q", shape.total_q)
        .add("total_kv", shape.total_kv)
        .add("max_seqlen_q", shape.max_seqlen_q)
        .add("max_seqlen_kv", shape.max_seqlen_kv)
        .add("h_q", shape.h_q)
        .add("h_kv", shape.h_kv)
        .add("d_qk", shape.d_qk)
        .add("d_v", shape.d_v)
        .add("dtype", name(shape.dtype))
        .add("topk", shape.topk)
        .add("causal", shape.causal)
        .add_plan(plan.options, plan.num_workers, plan.workspace_bytes);
    return facts.text();
}

}  // namespace

bool trace_enabled() {
    static const bool enabled = [] {
        const char* wanted = std::getenv("FLASHMLA_LOG");
        return wanted != nullptr && std::string_view(wanted) == "1";
    }();
    return enabled;
}

std::string trace_facts(const core::DecodeCall& call) {
    const DecodePlan& plan = *call.plan;
    const DecodeShape& shape = plan.shape;
    Facts facts(Operation::kDecode, plan.kernel, plan.device.arch);
    facts.add("b", shape.b)
        .add("s_q", shape.s_q)
        .add("h_q", shape.h_q)
        .add("h_kv", shape.h_kv)
        .add("d_qk", shape.d_qk)
        .add("d_v", shape.d_v)
        .add("dtype", name(shape.dtype))
        .add("format", name(shape.format))
        .add("page_size", shape.page_size)
        .add("max_pages", shape.max_pages)
        .add("topk", shape.topk)
        .add("extra_topk", shape.extra_topk)
        .add("causal", shape.causal)
        .add_plan(plan.options, plan.num_workers, plan.workspace_bytes);
    return facts.text();
}

std::string trace_facts(const core::SparsePrefillCall& call) { return prefill_facts(*call.plan); }
std::string trace_facts(const core::DensePrefillCall& call) { return prefill_facts(*call.plan); }
std::string trace_facts(const core::DensePrefillBackwardCall& call) { return prefill_facts(*call.forward.plan); }

std::string trace_facts(const core::MergeCall& call) {
    Facts facts(KernelId::kCpuMerge);
    facts.add("parts", call.outs.size())
        .add("b", call.b)
        .add("s_q", call.s_q)
        .add("h_q", call.h_q)
        .add("d_v", call.d_v)
        .add("dtype", name(call.out.dtype))
        .add("threads", call.threads);
    return facts.text();
}

std::string trace_facts(const core::AbsorbCall& call) {
    Facts facts(KernelId::kCpuAbsorb);
    facts.add("projection", call.transposed ? "project_output" : "absorb_query")
        .add("n", call.n)
        .add("h", call.h)
        .add("depth", call.depth)
        .add("columns", call.columns)
        .add("dtype", name(call.dtype))
        .add("threads", call.threads);
    return facts.text();
}

std::string trace_facts(const core::AppendCall& call) {
    Facts facts(KernelId::kCpuAppend);
    facts.add_cache("", call.cache)
        .add("d_qk", call.cache.d_qk)
        .add("tokens", call.tokens)
        .add("dtype", name(call.latent.dtype))
        .add("rotary", call.positions.data != nullptr)
        .add("threads", call.max_threads);
    return facts.text();
}

std::string trace_facts(const core::GatherCall& call) {
    Facts facts(KernelId::kCpuGather);
    facts.add_cache("", call.cache)
        .add("d_qk", call.cache.d_qk)
        .add("rows", call.rows)
        .add("by", call.slots.data != nullptr ? "slot_ids" : "block_table")
        .add("dtype", name(call.out.dtype))
        .add("threads", call.max_threads);
    return facts.text();
}

std::string trace_facts(const core::CopyPagesCall& call) {
    Facts facts(KernelId::kCpuCopyPages);
    facts.add_cache("source_", call.source)
        .add_cache("destination_", call.destination)
        .add("d_qk", call.source.d_qk)
        .add("pairs", call.count)
        .add("threads", call.max_threads);
    return facts.text();
}

std::string trace_facts(const core::ConvertCall& call) {
    Facts facts(KernelId::kCpuConvert);
    facts.add_cache("source_", call.source)
        .add_cache("destination_", call.destination)
        .add("d_qk", call.source.d_qk)
        .add("threads", call.max_threads);
    return facts.text();
}

void trace(const std::string& facts, const Status& status, const TraceClock& clock) {
    std::ostringstream line;
    line << "flashmla: " << facts << " host_us=" << clock.microseconds()
         << " status=" << (status.ok() ? "ok" : status.message()) << '\n';
    std::cerr << line.str();  // one write, so that lines of concurrent calls do not mix
}

}  // namespace flashmla::dispatch
