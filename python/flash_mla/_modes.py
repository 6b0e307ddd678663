"""Decode beyond dense 16-bit caches: token-sparse, with a second cache and a sink, and on fp8 caches."""

from __future__ import annotations

from typing import Any

import torch
from flashmla import _core

from flash_mla._dense import check_out, complain, outputs
from flash_mla._operators import check_tensor, is_traced, readable, register

# What a call may have beyond a dense one, as _core.decode takes it; the names are those of flashmla.decode.
EXTRAS = (
    "indices",
    "topk_length",
    "extra_k_cache",
    "extra_indices",
    "extra_topk_length",
    "attn_sink",
    "descale_q",
    "descale_k",
)


def decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    cache_seqlens: torch.Tensor | None,
    head_dim_v: int,
    softmax_scale: float | None,
    causal: bool,
    batch_invariant: bool,
    extras: tuple[torch.Tensor | None, ...],
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse); `extras` in the order of EXTRAS. Traced calls go through the operator, others straight to the binding."""
    check_tensor("q", q)
    if is_traced(q):
        arguments = (
            q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal, batch_invariant, *extras
        )
        if out is not None:
            return out, torch.ops.flash_mla.decode_out(*arguments, out)
        result: tuple[torch.Tensor, torch.Tensor] = torch.ops.flash_mla.decode(*arguments)
        return result
    return _run(
        q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal, batch_invariant, *extras, out=out
    )


def _run(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    cache_seqlens: torch.Tensor | None,
    head_dim_v: int,
    softmax_scale: float | None,
    causal: bool,
    batch_invariant: bool,
    *extras: torch.Tensor | None,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    q, k_cache = readable(q, k_cache)
    if q.dim() != 4 or not 0 < head_dim_v <= q.shape[3]:
        complain(q, k_cache, block_table, cache_seqlens, head_dim_v, extras)
    if out is not None:
        check_out(out, head_dim_v)
    fresh, lse = outputs(q, head_dim_v)
    out = fresh if out is None else out
    _core.decode(
        q, k_cache, block_table, cache_seqlens, None, out, lse, softmax_scale, causal, batch_invariant, "", 0, None, None,
        extras,
    )
    return out, lse


def _run_out(*arguments: Any) -> torch.Tensor:
    *inputs, out = arguments
    return _run(*inputs, out=out)[1]


def _fake(q: torch.Tensor, k_cache: Any, block_table: Any, cache_seqlens: Any, head_dim_v: int, *_: Any) -> Any:
    return outputs(q, head_dim_v)


def _fake_out(*arguments: Any) -> torch.Tensor:
    q, out = arguments[0], arguments[-1]
    return outputs(q, out.shape[-1])[1]


_ARGUMENTS = (
    "Tensor q, Tensor k_cache, Tensor? block_table, Tensor? cache_seqlens, int head_dim_v, float? softmax_scale, bool causal, "
    "bool batch_invariant, " + ", ".join(f"Tensor? {name}" for name in EXTRAS)
)
register(f"decode({_ARGUMENTS}) -> (Tensor, Tensor)", _run, _fake)
register(f"decode_out({_ARGUMENTS}, Tensor(a!) out) -> Tensor", _run_out, _fake_out)
