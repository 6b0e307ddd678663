// decode in two steps, so that the caller's framework allocates: `decode_workspace_bytes` checks and plans, `decode`
// runs. Both take the same arguments; all of them positional, because keywords cost more than the rest of the call.
#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include "bind.hpp"
#include "flashmla/decode.hpp"
#include "plan_cache.hpp"
#include "raise.hpp"
#include "tensor_import.hpp"

namespace nb = nanobind;

namespace flashmla::python {
namespace {

constexpr std::align_val_t kWorkspaceAlignment{256};

struct FreeAligned {
    void operator()(void* memory) const { ::operator delete(memory, kWorkspaceAlignment); }
};

// The arguments both steps share. out and lse may be None in the first: fresh ones then take the shapes the library
// wants.
struct Request {
    ImportedTensor q, k_cache, block_table, cache_seqlens, cu_seqlens_k, out, lse;
    DecodeArgs args;
    PlanOptions options;
};

enum class Presence { kRequired, kOptional };

void set(TensorView& view, ImportedTensor& kept, const char* argument, nb::handle array, Access access,
         Presence presence) {
    if (presence == Presence::kOptional && array.is_none()) return;
    kept = import_tensor(argument, array, access);
    view = kept.view;
}

void fill(Request& request, nb::handle q, nb::handle k_cache, nb::handle block_table, nb::handle cache_seqlens,
          nb::handle cu_seqlens_k, nb::handle out, nb::handle lse, nb::handle softmax_scale, bool causal,
          bool batch_invariant, std::string kernel, int num_workers) {
    DecodeArgs& args = request.args;
    set(args.q, request.q, "q", q, Access::kRead, Presence::kRequired);
    set(args.k_cache, request.k_cache, "k_cache", k_cache, Access::kRead, Presence::kRequired);
    set(args.block_table, request.block_table, "block_table", block_table, Access::kRead, Presence::kRequired);
    set(args.cache_seqlens, request.cache_seqlens, "cache_seqlens", cache_seqlens, Access::kRead, Presence::kOptional);
    set(args.cu_seqlens_k, request.cu_seqlens_k, "cu_seqlens_k", cu_seqlens_k, Access::kRead, Presence::kOptional);
    set(args.out, request.out, "out", out, Access::kWrite, Presence::kOptional);
    set(args.lse, request.lse, "lse", lse, Access::kWrite, Presence::kOptional);
    if (!softmax_scale.is_none()) {
        args.softmax_scale = nb::cast<double>(softmax_scale);
        args.has_softmax_scale = true;
    }
    args.causal = causal;
    request.options = {.batch_invariant = batch_invariant, .kernel = std::move(kernel), .num_workers = num_workers};
}

// d_v and the width of a caller's out say the same thing twice.
void check_width(const TensorView& out, std::int64_t d_v) {
    if (out.rank != 4 || out.shape[3] == d_v) return;
    throw nb::value_error(
        ("out: got a last axis of " + std::to_string(out.shape[3]) + ", wanted d_v = " + std::to_string(d_v)).c_str());
}

// Stands in for an output that is not allocated yet: right in every respect but its address.
void promise_outputs(DecodeArgs& args, std::int64_t d_v) {
    if (args.q.rank != 4) return;  // the library names q first
    const auto [b, s_q, h_q, d_qk] = args.q.shape;
    if (args.out.rank == 0) args.out = contiguous_view(args.q.data, args.q.dtype, {b, s_q, h_q, d_v}, args.q.device);
    if (args.lse.rank == 0) args.lse = contiguous_view(args.q.data, DType::kFloat32, {b, h_q, s_q}, args.q.device);
}

std::size_t decode_workspace_bytes(nb::handle q, nb::handle k_cache, nb::handle block_table, nb::handle cache_seqlens,
                                   nb::handle cu_seqlens_k, nb::handle out, nb::handle lse, std::int64_t d_v,
                                   nb::handle softmax_scale, bool causal, bool batch_invariant, std::string kernel,
                                   int num_workers) {
    Request request;
    fill(request, q, k_cache, block_table, cache_seqlens, cu_seqlens_k, out, lse, softmax_scale, causal,
         batch_invariant, std::move(kernel), num_workers);
    check_width(request.args.out, d_v);
    promise_outputs(request.args, d_v);
    raise_if_failed(decode_shape(request.args).status());
    return value_or_raise(cached_plan(request.args, request.options))->workspace_bytes;
}

// workspace: None means fresh memory, on a GPU from the framework's allocator (which needs an exchange table).
// stream: an address, or None for the framework's current one.
void decode(nb::handle q, nb::handle k_cache, nb::handle block_table, nb::handle cache_seqlens, nb::handle cu_seqlens_k,
            nb::handle out, nb::handle lse, nb::handle softmax_scale, bool causal, bool batch_invariant,
            std::string kernel, int num_workers, nb::handle workspace, nb::handle stream) {
    Request request;
    fill(request, q, k_cache, block_table, cache_seqlens, cu_seqlens_k, out, lse, softmax_scale, causal,
         batch_invariant, std::move(kernel), num_workers);
    const DecodeArgs& args = request.args;
    const auto plan = value_or_raise(cached_plan(args, request.options));
    const bool on_cpu = args.q.device.type == DeviceType::kCpu;

    ImportedBytes memory;
    std::unique_ptr<void, FreeAligned> own;
    OwnedTensor framework_memory;
    if (!workspace.is_none()) {
        memory = import_bytes("workspace", workspace, Access::kWrite);
        if (memory.device != args.q.device) throw nb::value_error("workspace: on another device than q");
    } else if (on_cpu) {
        own.reset(::operator new(plan->workspace_bytes, kWorkspaceAlignment));
        memory.data = own.get();
        memory.size_bytes = static_cast<std::int64_t>(plan->workspace_bytes);
    } else if ((framework_memory = allocate_bytes(request.q.bytes, plan->workspace_bytes)) != nullptr) {
        memory.data = framework_memory->tensor.data;
        memory.size_bytes = static_cast<std::int64_t>(plan->workspace_bytes);
    }
    const auto run = [&](StreamHandle handle) {
        return run_decode(*plan, args, memory.data, static_cast<std::size_t>(memory.size_bytes), handle);
    };
    Status status;
    if (on_cpu) {
        const nb::gil_scoped_release released;  // other Python threads go on meanwhile
        status = run(nullptr);
    } else {
        // Enqueueing takes a few microseconds: giving the GIL away could cost a whole switch interval to get it back.
        status = run(stream.is_none() ? current_stream(request.q)
                                      : reinterpret_cast<StreamHandle>(nb::cast<std::uintptr_t>(stream)));
    }
    raise_if_failed(status);
}

}  // namespace

void bind_decode(nb::module_& module) {
    module.def("decode_workspace_bytes", &decode_workspace_bytes, nb::arg().none(), nb::arg().none(), nb::arg().none(),
               nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg().none(),
               nb::arg(), nb::arg(), nb::arg(), nb::arg());
    module.def("decode", &decode, nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(),
               nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(),
               nb::arg(), nb::arg().none(), nb::arg().none());
}

}  // namespace flashmla::python
