"""Dense multi-head attention over a ragged batch, and its backward."""

from __future__ import annotations

from typing import Any

from flashmla import _arrays, _core
from flashmla._arguments import integer, plan_options, scale
from flashmla._planned import in_two_steps


def dense_prefill(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_kv: Any,
    *,
    max_seqlen_q: int | None = None,
    max_seqlen_kv: int | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    out: Any = None,
    lse: Any = None,
    batch_invariant: bool = False,
    kernel: str = "",
    num_workers: int = 0,
    workspace: Any = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """Multi-head attention of a ragged batch, each request over its own keys.

    Arguments:
        q: (total_q, h_q, d_qk), bfloat16 or float16: the query tokens of all requests, one request after the other.
        k: (total_kv, h_kv, d_qk) of q's dtype; h_q is a multiple of h_kv.
        v: (total_kv, h_kv, d_v) of q's dtype. (d_qk, d_v) is (192, 128) or (128, 128).
        cu_seqlens_q: (b + 1,) int32 from 0 to total_q: request i has the query tokens [cu[i], cu[i + 1]).
        cu_seqlens_kv: (b + 1,) int32 from 0 to total_kv, the same for keys.
        max_seqlen_q, max_seqlen_kv: bounds of the lengths in tokens. None finds them, when the lengths are in host memory.
        softmax_scale: factor of the scores; None means d_qk ** -0.5.
        causal: query token i of a request sees its first len_kv - len_q + i + 1 keys.
        out, lse: outputs to write into; fresh ones in q's framework by default.
        batch_invariant, kernel, num_workers, workspace, stream: as in `decode`.

    Returns:
        out (total_q, h_q, d_v) of q's dtype, and lse (total_q, h_q) float32, natural logarithm. A query token that sees no key has
        out 0 and lse +inf.

    Raises:
        ValueError, NotImplementedError, MemoryError, RuntimeError: as `decode` does.
    """
    address = _arrays.stream_address(q, stream)
    inputs = tuple(_arrays.export(array, address) for array in (q, k, v, cu_seqlens_q, cu_seqlens_kv))
    options = _dense_options(max_seqlen_q, max_seqlen_kv, softmax_scale, causal, batch_invariant, kernel, num_workers)

    def call(outputs: tuple[Any, ...], memory: Any, execute: bool) -> int:
        return _core.dense_prefill((*inputs, *outputs), *options, memory, address, execute)

    def fresh() -> tuple[Any, ...]:
        rows = q.shape[:2]
        return _arrays.fill_in(q, (out, (*rows, v.shape[2]), None), (lse, rows, "float32"))

    out, lse = in_two_steps(q, call, (out, lse), fresh, workspace, address)
    return out, lse


def dense_prefill_backward(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    cu_seqlens_q: Any,
    cu_seqlens_kv: Any,
    *,
    dlse: Any = None,
    max_seqlen_q: int | None = None,
    max_seqlen_kv: int | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    dq: Any = None,
    dk: Any = None,
    dv: Any = None,
    batch_invariant: bool = False,
    kernel: str = "",
    num_workers: int = 0,
    workspace: Any = None,
    stream: Any = None,
) -> tuple[Any, Any, Any]:
    """Gradients of `dense_prefill`.

    Arguments:
        dout: (total_q, h_q, d_v) of q's dtype, the gradient of out.
        q, k, v, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv, softmax_scale, causal: those of the forward call.
        out, lse: what the forward call returned.
        dlse: (total_q, h_q) float32, the gradient of lse; None if there is none.
        dq, dk, dv: outputs to write into, of q's, k's and v's shape; fresh ones in q's framework by default.
        batch_invariant, kernel, num_workers, workspace, stream: as in `decode`.

    Returns:
        dq, dk, dv of q's dtype.

    Raises:
        ValueError, NotImplementedError, MemoryError, RuntimeError: as `decode` does.
    """
    address = _arrays.stream_address(q, stream)
    inputs = tuple(_arrays.export(array, address) for array in (q, k, v, cu_seqlens_q, cu_seqlens_kv, out, lse))
    given = _arrays.export(dout, address), _arrays.export(dlse, address)
    options = _dense_options(max_seqlen_q, max_seqlen_kv, softmax_scale, causal, batch_invariant, kernel, num_workers)

    def call(outputs: tuple[Any, ...], memory: Any, execute: bool) -> int:
        return _core.dense_prefill_backward(inputs, (*given, *outputs), *options, memory, address, execute)

    def fresh() -> tuple[Any, ...]:
        return _arrays.fill_in(q, (dq, q.shape, None), (dk, k.shape, None), (dv, v.shape, None))

    dq, dk, dv = in_two_steps(q, call, (dq, dk, dv), fresh, workspace, address)
    return dq, dk, dv


def _dense_options(
    max_seqlen_q: Any, max_seqlen_kv: Any, softmax_scale: Any, causal: Any, *options: Any
) -> tuple[tuple[int | None, int | None], float | None, bool, tuple[bool, str, int]]:
    bounds = (
        None if max_seqlen_q is None else integer("max_seqlen_q", max_seqlen_q),
        None if max_seqlen_kv is None else integer("max_seqlen_kv", max_seqlen_kv),
    )
    return bounds, scale(softmax_scale), bool(causal), plan_options(*options)
