"""Dense multi-head attention over ragged batches, with its gradients."""

from __future__ import annotations

from typing import Any

import torch
from flashmla import _core
from torch.autograd.function import once_differentiable

from flash_mla._operators import check_tensor, is_traced, readable, register
from flash_mla._options import batch_invariant

_Pair = tuple[torch.Tensor, torch.Tensor]
_Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_qo: torch.Tensor,
    cu_seqlens_kv: torch.Tensor,
    max_seqlen_qo: int,
    max_seqlen_kv: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    deterministic: bool = False,
    is_varlen: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Multi-head attention over a ragged batch, differentiable in q, k and v through both results.

    Arguments:
        q: (total_q, h_q, d_qk), bfloat16 or float16.
        k, v: (total_kv, h_kv, d_qk) and (total_kv, h_kv, d_v) of q's dtype; h_q is a multiple of h_kv. (d_qk, d_v) is (192, 128)
            or (128, 128).
        cu_seqlens_qo, cu_seqlens_kv: (b + 1,) int32 cumulative lengths: request i has the rows [cu[i], cu[i + 1]).
        max_seqlen_qo, max_seqlen_kv: no request is longer.
        dropout_p: 0.
        softmax_scale: None means d_qk ** -0.5.
        causal: query i of a request sees its first max(0, len_kv - len_q + i + 1) keys.
        deterministic: gradients are the same bits run after run, asked for or not.
        is_varlen: taken for compatibility; lengths are read from cu_seqlens in any case.

    Returns:
        out (total_q, h_q, d_v) of q's dtype, and lse (total_q, h_q) float32, the natural-log log-sum-exp of the scaled scores. A
        query that sees no key has out 0 and lse +inf.

    Raises:
        ValueError: wrong rank, shape, dtype, stride or device, or a dropout_p other than 0.
        NotImplementedError: what this build or device cannot do.
    """
    if dropout_p != 0.0:
        raise ValueError(f"dropout_p: got {dropout_p}, wanted 0")
    if softmax_scale is not None:
        softmax_scale = float(softmax_scale)
    lengths = cu_seqlens_qo, cu_seqlens_kv, int(max_seqlen_qo), int(max_seqlen_kv)
    return _attend(q, k, v, *lengths, softmax_scale, bool(causal), batch_invariant())


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    head_dim_qk: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    deterministic: bool = False,
    is_varlen: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """flash_attn_varlen_func on qkv (total, h, 2 * head_dim_qk + d_v): the last axis holds q, then k, then v."""
    _check_packed("qkv", qkv, 2 * head_dim_qk)
    q, kv = qkv[..., :head_dim_qk], qkv[..., head_dim_qk:]
    options = dropout_p, softmax_scale, causal, deterministic, is_varlen
    return flash_attn_varlen_kvpacked_func(
        q, kv, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, head_dim_qk, *options
    )


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_qo: torch.Tensor,
    cu_seqlens_kv: torch.Tensor,
    max_seqlen_qo: int,
    max_seqlen_kv: int,
    head_dim_qk: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    deterministic: bool = False,
    is_varlen: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """flash_attn_varlen_func on kv (total_kv, h_kv, head_dim_qk + d_v): the last axis holds k, then v."""
    _check_packed("kv", kv, head_dim_qk)
    k, v = kv[..., :head_dim_qk], kv[..., head_dim_qk:]
    lengths = cu_seqlens_qo, cu_seqlens_kv, max_seqlen_qo, max_seqlen_kv
    return flash_attn_varlen_func(q, k, v, *lengths, dropout_p, softmax_scale, causal, deterministic, is_varlen)


def _check_packed(name: str, packed: torch.Tensor, width: int) -> None:
    """A packed tensor has room for a value behind `width` values of q and k."""
    check_tensor(name, packed)
    if packed.dim() != 3 or not 0 < width < packed.shape[2]:
        got = f"shape {tuple(packed.shape)}"
        raise ValueError(f"{name}: got {got}, wanted (tokens, heads, width) with more than the {width} values of head_dim_qk")


def _attend(*arguments: Any) -> _Pair:
    for name, value in zip(("q", "k", "v"), arguments, strict=False):
        check_tensor(name, value)
    result: _Pair = (
        torch.ops.flash_mla.varlen_forward(*arguments) if is_traced(arguments[0]) else _Attention.apply(*arguments)
    )
    return result


def _forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_kv: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_kv: int,
    softmax_scale: float | None,
    causal: bool,
    batch_invariant: bool,
) -> _Pair:
    q, k, v = readable(q, k, v)
    options = (max_seqlen_q, max_seqlen_kv), softmax_scale, causal, (batch_invariant, "", 0), None, None
    inputs = q, k, v, cu_seqlens_q, cu_seqlens_kv
    if q.dim() != 3 or v.dim() != 3:  # no outputs can be made: the library says what is wrong
        _core.dense_prefill((*inputs, None, None), *options, False)
        raise AssertionError("the library accepted a shape without outputs")
    out = q.new_empty((*q.shape[:2], v.shape[2]))
    lse = q.new_empty(q.shape[:2], dtype=torch.float32)
    _core.dense_prefill((*inputs, out, lse), *options, True)
    return out, lse


def _backward(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *arguments: Any,
) -> _Gradients:
    """`arguments` are those of _forward after v."""
    cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv, softmax_scale, causal, batch_invariant = arguments
    dout, dlse, q, k, v = readable(dout, dlse, q, k, v)
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    _core.dense_prefill_backward(
        (q, k, v, cu_seqlens_q, cu_seqlens_kv, out.detach(), lse.detach()),
        (dout, dlse, dq, dk, dv),
        (max_seqlen_q, max_seqlen_kv),
        softmax_scale,
        causal,
        (batch_invariant, "", 0),
        None,
        None,
        True,
    )
    return dq, dk, dv


def _save(ctx: Any, inputs: tuple[Any, ...], output: _Pair) -> None:
    q, k, v, cu_seqlens_q, cu_seqlens_kv, *ctx.numbers = inputs
    ctx.save_for_backward(q, k, v, *output, cu_seqlens_q, cu_seqlens_kv)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, dout: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[Any, ...]:
    """Gradients of q, k and v; both results may have been used, or one of them."""
    q, k, v, out, lse, cu_seqlens_q, cu_seqlens_kv = ctx.saved_tensors
    dout = torch.zeros_like(out) if dout is None else dout.contiguous()  # sums come back as expanded scalars
    dlse = None if dlse is None else dlse.contiguous()
    run = torch.ops.flash_mla.varlen_backward if is_traced(dout) else _backward
    gradients = run(dout, dlse, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_kv, *ctx.numbers)
    return *gradients, None, None, None, None, None, None, None


class _Attention(torch.autograd.Function):
    """The eager form: straight to the binding, in both directions."""

    forward = staticmethod(_forward)
    setup_context = staticmethod(_save)
    backward = staticmethod(once_differentiable(_differentiate))


def _fake_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any) -> _Pair:
    total, heads, _d = q.shape
    return q.new_empty((total, heads, v.shape[2])), q.new_empty((total, heads), dtype=torch.float32)


def _fake_backward(dout: Any, dlse: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any) -> _Gradients:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


_LENGTHS = (
    "Tensor cu_seqlens_q, Tensor cu_seqlens_kv, SymInt max_seqlen_q, SymInt max_seqlen_kv, float? softmax_scale, bool causal, "
    "bool batch_invariant"
)
register(f"varlen_forward(Tensor q, Tensor k, Tensor v, {_LENGTHS}) -> (Tensor, Tensor)", _forward, _fake_forward)
register(
    f"varlen_backward(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, {_LENGTHS}) -> "
    "(Tensor, Tensor, Tensor)",
    _backward,
    _fake_backward,
)
torch.library.register_autograd("flash_mla::varlen_forward", _differentiate, setup_context=_save)
