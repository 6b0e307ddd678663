// decode in two steps, so that the caller's framework allocates: `decode_workspace_bytes` checks and plans, `decode`
// runs. Both take the same arguments; all of them positional, because keywords cost more than the rest of the call.
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>
#include <utility>

#include "bind.hpp"
#include "planned_decode.hpp"
#include "raise.hpp"

namespace nb = nanobind;

namespace flashmla::python {
namespace {

// The arguments both steps share. out and lse may be None in the first: fresh ones then take the shapes the library
// wants.
struct Request {
    Arguments kept;
    DecodeArgs args;
    PlanOptions options;
};

// What sparse calls and fp8 caches add: None, or a tuple (indices, topk_length, extra_k_cache, extra_indices,
// extra_topk_length, attn_sink, descale_q, descale_k) with None for what is not given.
void fill_extras(Request& request, nb::handle extras) {
    constexpr Py_ssize_t kCount = 8;
    if (!PyTuple_Check(extras.ptr()) || PyTuple_Size(extras.ptr()) != kCount) {
        throw nb::value_error("extras: wanted a tuple of 8");
    }
    DecodeArgs& args = request.args;
    const std::pair<const char*, TensorView*> named[kCount] = {{"indices", &args.indices},
                                                               {"topk_length", &args.topk_length},
                                                               {"extra_k_cache", &args.extra_k_cache},
                                                               {"extra_indices", &args.extra_indices},
                                                               {"extra_topk_length", &args.extra_topk_length},
                                                               {"attn_sink", &args.attn_sink},
                                                               {"descale_q", &args.descale_q},
                                                               {"descale_k", &args.descale_k}};
    for (Py_ssize_t i = 0; i < kCount; ++i) {
        *named[i].second = request.kept.read_if_given(named[i].first, PyTuple_GetItem(extras.ptr(), i));
    }
}

void fill(Request& request, nb::handle q, nb::handle k_cache, nb::handle block_table, nb::handle cache_seqlens,
          nb::handle cu_seqlens_k, nb::handle out, nb::handle lse, nb::handle softmax_scale, bool causal,
          bool batch_invariant, std::string kernel, int num_workers, nb::handle extras) {
    Arguments& kept = request.kept;
    DecodeArgs& args = request.args;
    args.q = kept.read("q", q);
    args.k_cache = kept.read("k_cache", k_cache);
    if (!extras.is_none()) fill_extras(request, extras);
    const bool sparse = args.indices.rank != 0;
    args.block_table = sparse ? kept.read_if_given("block_table", block_table) : kept.read("block_table", block_table);
    args.cache_seqlens = kept.read_if_given("cache_seqlens", cache_seqlens);
    args.cu_seqlens_k = kept.read_if_given("cu_seqlens_k", cu_seqlens_k);
    args.out = kept.write_if_given("out", out);
    args.lse = kept.write_if_given("lse", lse);
    set_scale(softmax_scale, args.softmax_scale, args.has_softmax_scale);
    args.causal = causal;
    request.options = {.batch_invariant = batch_invariant, .kernel = std::move(kernel), .num_workers = num_workers};
}

// e4m3 queries give bf16 outputs.
DType output_dtype(DType q) { return q == DType::kFloat8E4m3 ? DType::kBFloat16 : q; }

// Stands in for an output that is not allocated yet: right in every respect but its address.
void promise_outputs(DecodeArgs& args, std::int64_t d_v) {
    if (args.q.rank != 4) return;  // the library names q first
    const auto [b, s_q, h_q, d_qk] = args.q.shape;
    if (args.out.rank == 0)
        args.out = contiguous_view(args.q.data, output_dtype(args.q.dtype), {b, s_q, h_q, d_v}, args.q.device);
    if (args.lse.rank == 0) args.lse = contiguous_view(args.q.data, DType::kFloat32, {b, h_q, s_q}, args.q.device);
}

std::size_t decode_workspace_bytes(nb::handle q, nb::handle k_cache, nb::handle block_table, nb::handle cache_seqlens,
                                   nb::handle cu_seqlens_k, nb::handle out, nb::handle lse, std::int64_t d_v,
                                   nb::handle softmax_scale, bool causal, bool batch_invariant, std::string kernel,
                                   int num_workers, nb::handle extras) {
    Request request;
    fill(request, q, k_cache, block_table, cache_seqlens, cu_seqlens_k, out, lse, softmax_scale, causal,
         batch_invariant, std::move(kernel), num_workers, extras);
    check_width(request.args.out, 4, d_v);
    promise_outputs(request.args, d_v);
    raise_if_failed(decode_shape(request.args).status());
    return value_or_raise(cached_plan(request.args, request.options))->workspace_bytes;
}

// workspace: None means fresh memory, on a GPU from the framework's allocator (which needs an exchange table).
// stream: an address, or None for the framework's current one.
void decode(nb::handle q, nb::handle k_cache, nb::handle block_table, nb::handle cache_seqlens, nb::handle cu_seqlens_k,
            nb::handle out, nb::handle lse, nb::handle softmax_scale, bool causal, bool batch_invariant,
            std::string kernel, int num_workers, nb::handle workspace, nb::handle stream, nb::handle extras) {
    Request request;
    fill(request, q, k_cache, block_table, cache_seqlens, cu_seqlens_k, out, lse, softmax_scale, causal,
         batch_invariant, std::move(kernel), num_workers, extras);
    run_planned(request.kept, request.args, request.options, workspace, stream);
}

}  // namespace

void bind_decode(nb::module_& module) {
    module.def("decode_workspace_bytes", &decode_workspace_bytes, nb::arg().none(), nb::arg().none(), nb::arg().none(),
               nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg().none(),
               nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg("extras").none() = nb::none());
    module.def("decode", &decode, nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(),
               nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(),
               nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg("extras").none() = nb::none());
}

}  // namespace flashmla::python
