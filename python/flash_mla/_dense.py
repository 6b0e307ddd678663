"""Dense decode on torch tensors. Eager calls go straight to the binding; tracing goes through a registered operator."""

from __future__ import annotations

from typing import Any

import torch
from flashmla import _core

from flash_mla import _options

_decode = _core.decode


def dense_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    head_dim_v: int,
    softmax_scale: float | None,
    causal: bool,
    batch_invariant: bool,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) of a dense call, eagerly. Tensor subclasses (fake tensors among them) take the dispatcher's way."""
    if type(q) is not torch.Tensor:
        if not isinstance(q, torch.Tensor):
            raise ValueError(f"q: got {type(q).__name__}, wanted a torch tensor")
        return traced_decode(q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal, batch_invariant, out)
    return _run(q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal, batch_invariant, out)


def traced_decode(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The same through the registered operator, which tracers see as one node."""
    *inputs, out = arguments
    if out is None:
        return torch.ops.flash_mla.dense_decode(*inputs)  # type: ignore[no-any-return]
    return out, torch.ops.flash_mla.dense_decode_out(*inputs, out)


def _run(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    head_dim_v: int,
    softmax_scale: float | None,
    causal: bool,
    batch_invariant: bool,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = q.shape
    if len(shape) != 4 or not 0 < head_dim_v <= shape[3]:
        _complain(q, k_cache, block_table, cache_seqlens, head_dim_v)
    if out is None:
        out = q.new_empty((shape[0], shape[1], shape[2], head_dim_v))
    elif out.shape[-1:] != (head_dim_v,):
        raise ValueError(f"out: got shape {tuple(out.shape)}, wanted a last axis of head_dim_v = {head_dim_v}")
    lse = torch.empty((shape[0], shape[2], shape[1]), dtype=torch.float32, device=q.device)
    _decode(
        q, k_cache, block_table, cache_seqlens, None, out, lse, softmax_scale, causal, batch_invariant, "", 0, None, None
    )
    return out, lse


def _complain(q: Any, k_cache: Any, block_table: Any, cache_seqlens: Any, head_dim_v: int) -> None:
    """Shapes from which no outputs can be made: the library says what is wrong with them."""
    _core.decode_workspace_bytes(
        q, k_cache, block_table, cache_seqlens, None, None, None, head_dim_v, None, False, False, "", 0
    )
    raise AssertionError("the library accepted a shape without outputs")


_library = torch.library.Library("flash_mla", "DEF")
_ARGUMENTS = (
    "Tensor q, Tensor k_cache, Tensor block_table, Tensor cache_seqlens, int head_dim_v, float? softmax_scale, bool causal, "
    "bool batch_invariant"
)
_library.define(f"dense_decode({_ARGUMENTS}) -> (Tensor, Tensor)")
_library.define(f"dense_decode_out({_ARGUMENTS}, Tensor(a!) out) -> Tensor")


def _run_out(*arguments: Any) -> torch.Tensor:
    return _run(*arguments)[1]


for _key in ("CPU", "CUDA"):
    _library.impl("dense_decode", _run, _key)
    _library.impl("dense_decode_out", _run_out, _key)


@torch.library.register_fake("flash_mla::dense_decode", lib=_library)
def _fake(q: torch.Tensor, k_cache: Any, block_table: Any, cache_seqlens: Any, head_dim_v: int, *_: Any) -> Any:
    b, s_q, h_q, _d = q.shape
    return q.new_empty((b, s_q, h_q, head_dim_v)), q.new_empty((b, h_q, s_q), dtype=torch.float32)


@torch.library.register_fake("flash_mla::dense_decode_out", lib=_library)
def _fake_out(q: torch.Tensor, *_: Any) -> Any:
    b, s_q, h_q, _d = q.shape
    return q.new_empty((b, h_q, s_q), dtype=torch.float32)
