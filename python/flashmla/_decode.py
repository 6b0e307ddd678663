"""MLA decode over a paged cache, dense or token-sparse."""

from __future__ import annotations

from typing import Any

from flashmla import _arrays, _core
from flashmla._arguments import integer, plan_options, scale


def decode(
    q: Any,
    k_cache: Any,
    block_table: Any = None,
    cache_seqlens: Any = None,
    *,
    d_v: int = 512,
    softmax_scale: float | None = None,
    causal: bool = False,
    cu_seqlens_k: Any = None,
    indices: Any = None,
    topk_length: Any = None,
    extra_k_cache: Any = None,
    extra_indices: Any = None,
    extra_topk_length: Any = None,
    attn_sink: Any = None,
    descale_q: Any = None,
    descale_k: Any = None,
    out: Any = None,
    lse: Any = None,
    batch_invariant: bool = False,
    kernel: str = "",
    num_workers: int = 0,
    workspace: Any = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """Attention of each request's query tokens over its cached tokens: softmax(softmax_scale * q . k) v.

    Dense calls give block_table and lengths, sparse calls give indices; what belongs to the other way is refused.

    Arguments:
        q: (b, s_q, h_q, d_qk), bfloat16 or float16; float8_e4m3fn with a flat fp8 cache.
        k_cache: (num_pages, page_size, h_kv, record). The record is d_qk values of q's dtype, d_qk e4m3 values (flat), or, as
            one-byte elements, 656 bytes (d_qk 576) or 584 bytes (d_qk 512): docs/kv_formats.md. The first d_v values of a
            token are its value. Pages may lie further apart than they are long.
        block_table: (b, max_pages) int32, the pages of each request in order. Entries past its length are never read through.
        cache_seqlens: (b,) int32, cached tokens of each request; 0 is legal.
        d_v: length of a value, 512 for the DeepSeek family.
        softmax_scale: factor of the scores; None means d_qk ** -0.5.
        causal: query token i of s_q sees the first len - s_q + i + 1 cached tokens. Dense only.
        cu_seqlens_k: (b + 1,) int32 cumulative lengths, instead of cache_seqlens.
        indices: (b, s_q, topk) int32, the tokens (page * page_size + offset) that each query token sees. An index outside the
            pool, such as -1, names no token.
        topk_length: (b,) or (b, s_q) int32: indices at or past it are not read.
        extra_k_cache: a second pool with tokens of the same format and a page size of its own, seen through extra_indices.
        extra_indices: (b, s_q, extra_topk) int32, like indices, into extra_k_cache.
        extra_topk_length: (b,) or (b, s_q) int32, like topk_length.
        attn_sink: (h_q,) float32: out is multiplied by exp(lse) / (exp(lse) + exp(sink)); lse is returned without it.
        descale_q, descale_k: (1,) or (b,) float32, flat fp8 only: what an e4m3 value of q or of the cache is worth; None is 1.
        out, lse: outputs to write into; fresh ones in q's framework by default.
        batch_invariant: the bits of a request do not depend on the other requests.
        kernel: force a kernel by its catalogue name; "" lets the planner choose.
        num_workers: threads on a CPU, thread block clusters on a GPU; 0 is all there are. On a CPU it never changes the bits.
        workspace: scratch memory of at least plan(...).workspace_bytes on q's device, aligned to 256 bytes; allocated by
            default.
        stream: CUDA stream (an address or a stream object); by default the framework's current one. Meaningless on a CPU.

    Returns:
        out (b, s_q, h_q, d_v) of q's dtype (bfloat16 for an e4m3 q), and lse (b, h_q, s_q) float32, the natural-log
        log-sum-exp of the scaled scores. A query token that sees no key has out 0 and lse +inf.

    Raises:
        ValueError: wrong rank, shape, dtype, stride or device; the message names the argument, what it got and what it takes.
        NotImplementedError: what no kernel of this build can do on this device.
        MemoryError, RuntimeError: out of memory; the device failed.
    """
    address = _arrays.stream_address(q, stream)
    q_, k_, table_, lengths_, cumulative_, out_, lse_ = (
        _arrays.export(array, address) for array in (q, k_cache, block_table, cache_seqlens, cu_seqlens_k, out, lse)
    )
    given = (indices, topk_length, extra_k_cache, extra_indices, extra_topk_length, attn_sink, descale_q, descale_k)
    extras = None
    if any(array is not None for array in given):
        extras = tuple(_arrays.export(array, address) for array in given)
    d_v = integer("d_v", d_v)
    options = scale(softmax_scale), bool(causal), *plan_options(batch_invariant, kernel, num_workers)
    workspace_bytes = _core.decode_workspace_bytes(
        q_, k_, table_, lengths_, cumulative_, out_, lse_, d_v, *options, extras
    )
    b, s_q, h_q = q.shape[:3]
    with _arrays.working_on(q, address):
        if out is None:
            out = _arrays.empty(q, (b, s_q, h_q, d_v), _arrays.output_dtype(q))
            out_ = _arrays.export(out, address)
        if lse is None:
            lse = _arrays.empty(q, (b, h_q, s_q), "float32")
            lse_ = _arrays.export(lse, address)
        if workspace is None and _arrays.needs_workspace(q):
            workspace = _arrays.empty(q, (workspace_bytes,), "uint8")
        workspace_ = _arrays.export(workspace, address)
        _core.decode(q_, k_, table_, lengths_, cumulative_, out_, lse_, *options, workspace_, address, extras)
    return _arrays.deliver(q, out), _arrays.deliver(q, lse)
