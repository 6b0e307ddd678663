"""Sparse prefill on torch tensors."""

from __future__ import annotations

from typing import Any

import torch
from flashmla import _core

from flash_mla._operators import check_tensor, is_traced, readable, register
from flash_mla._options import batch_invariant

_Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def flash_mla_sparse_fwd(
    q: torch.Tensor,
    kv: torch.Tensor,
    indices: torch.Tensor,
    sm_scale: float,
    d_v: int = 512,
    attn_sink: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sparse prefill: each query token attends to the latents that its indices name. Not causal: the indices decide.

    Arguments:
        q: (s_q, h_q, d_qk), bfloat16 or float16.
        kv: (s_kv, 1, d_qk) of q's dtype; the first d_v values of a token are its value.
        indices: (s_q, 1, topk) int32. An index outside [0, s_kv), such as -1, names no token.
        sm_scale: factor of the scores.
        d_v: length of a value.
        attn_sink: (h_q,) float32: out is multiplied by exp(lse) / (exp(lse) + exp(sink)); lse is returned without it.
        topk_length: (s_q,) int32; indices at or past it are never read.
        out: (s_q, h_q, d_v) of q's dtype to write into.

    Returns:
        out (s_q, h_q, d_v); max_logits (s_q, h_q) float32, the largest scaled score; lse (s_q, h_q) float32, the natural-log
        log-sum-exp of the scaled scores. A query token that sees no key has out 0, max_logits -inf and lse +inf.

    Raises:
        ValueError: wrong rank, shape, dtype, stride or device.
        NotImplementedError: what this build or device cannot do.
    """
    return _attend(q, kv, indices, float(sm_scale), int(d_v), attn_sink, topk_length, batch_invariant(), out)


def _attend(*arguments: Any) -> _Results:
    *inputs, out = arguments
    check_tensor("q", inputs[0])
    if not is_traced(inputs[0]):
        return _run(*arguments)
    if out is None:
        result: _Results = torch.ops.flash_mla.sparse_prefill(*inputs)
        return result
    return out, *torch.ops.flash_mla.sparse_prefill_out(*inputs, out)


def _run(
    q: torch.Tensor,
    kv: torch.Tensor,
    indices: torch.Tensor,
    sm_scale: float,
    d_v: int,
    attn_sink: torch.Tensor | None,
    topk_length: torch.Tensor | None,
    batch_invariant: bool,
    out: torch.Tensor | None,
) -> _Results:
    q, kv = readable(q, kv)
    inputs = q, kv, indices, topk_length, attn_sink
    options = d_v, sm_scale, (batch_invariant, "", 0), None, None
    if q.dim() != 3 or not 0 < d_v <= q.shape[2]:  # no outputs can be made: the library says what is wrong
        _core.sparse_prefill((*inputs, None, None, None), *options, False)
        raise AssertionError("the library accepted a shape without outputs")
    if out is not None and out.shape[-1:] != (d_v,):
        raise ValueError(f"out: got shape {tuple(out.shape)}, wanted a last axis of d_v = {d_v}")
    if out is None:
        out = q.new_empty((*q.shape[:2], d_v))
    max_logits, lse = _statistics(q)
    _core.sparse_prefill((*inputs, out, max_logits, lse), *options, True)
    return out, max_logits, lse


def _run_fresh(*inputs: Any) -> _Results:
    arguments = *inputs, None
    return _run(*arguments)


def _run_out(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return _run(*arguments)[1:]


def _statistics(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    s_q, h_q, _ = q.shape
    return q.new_empty((s_q, h_q), dtype=torch.float32), q.new_empty((s_q, h_q), dtype=torch.float32)


def _fake(q: torch.Tensor, kv: Any, indices: Any, sm_scale: float, d_v: int, *_: Any) -> _Results:
    s_q, h_q, _d = q.shape
    return q.new_empty((s_q, h_q, d_v)), *_statistics(q)


def _fake_out(q: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return _statistics(q)


_ARGUMENTS = (
    "Tensor q, Tensor kv, Tensor indices, float sm_scale, int d_v, Tensor? attn_sink, Tensor? topk_length, bool batch_invariant"
)
register(f"sparse_prefill({_ARGUMENTS}) -> (Tensor, Tensor, Tensor)", _run_fresh, _fake)
register(f"sparse_prefill_out({_ARGUMENTS}, Tensor(a!) out) -> (Tensor, Tensor)", _run_out, _fake_out)
