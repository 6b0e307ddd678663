"""Dense decode on torch tensors.

Eager calls go to _core.decode_torch, and step by step where that declines; tracing goes through a registered operator.
"""

from __future__ import annotations

from typing import Any

import flashmla
import torch
from flashmla import _core

_FLOAT32 = torch.float32
# torch 2.10 and newer let the binding read a tensor in place, and ask for the current stream and for scratch memory.
_CAN_DESCRIBE = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


def _find_allocation() -> tuple[Any, ...] | None:
    """What _core.decode_torch makes outputs with: inductor's allocation calls, 0.7 us a tensor where new_empty takes 2."""
    try:
        from torch._C._dynamo.guards import _empty_strided_cpu, _empty_strided_cuda
    except ImportError:
        return None
    current_device = getattr(torch._C, "_cuda_getDevice", None)
    return _empty_strided_cpu, _empty_strided_cuda, current_device, _FLOAT32, torch.bfloat16, torch.float16


ALLOCATION = _find_allocation() if _CAN_DESCRIBE else None


def decode_in_steps(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    cache_seqlens: torch.Tensor | None,
    head_dim_v: int,
    softmax_scale: float | None,
    causal: bool,
    batch_invariant: bool,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) of a dense call on plain tensors, step by step: for whatever _core.decode_torch declines."""
    shape = q.shape
    if len(shape) != 4 or not 0 < head_dim_v <= shape[3]:
        complain(q, k_cache, block_table, cache_seqlens, head_dim_v)
    if not _CAN_DESCRIBE:
        return _decode_by_dlpack(
            q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal, batch_invariant, out
        )
    if out is not None:
        check_out(out, head_dim_v)
    fresh, lse = outputs(q, head_dim_v)
    out = fresh if out is None else out
    _core.decode(
        q, k_cache, block_table, cache_seqlens, None, out, lse, softmax_scale, causal, batch_invariant, "", 0, None, None
    )
    return out, lse


def _decode_by_dlpack(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    cache_seqlens: torch.Tensor | None,
    head_dim_v: int,
    softmax_scale: float | None,
    causal: bool,
    batch_invariant: bool,
    out: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """For torch before 2.10, at the price of __dlpack__ for every tensor of every call."""
    return flashmla.decode(
        q,
        k_cache,
        block_table,
        cache_seqlens,
        d_v=head_dim_v,
        softmax_scale=softmax_scale,
        causal=causal,
        batch_invariant=batch_invariant,
        out=out,
    )


def check_out(out: torch.Tensor, head_dim_v: int) -> None:
    if out.shape[-1:] != (head_dim_v,):
        raise ValueError(f"out: got shape {tuple(out.shape)}, wanted a last axis of head_dim_v = {head_dim_v}")


def outputs(q: torch.Tensor, head_dim_v: int) -> tuple[torch.Tensor, torch.Tensor]:
    """New tensors for out and lse; for fake tensors too."""
    b, s_q, h_q, _ = q.shape
    dtype = torch.bfloat16 if q.dtype == torch.float8_e4m3fn else q.dtype
    return q.new_empty((b, s_q, h_q, head_dim_v), dtype=dtype), q.new_empty((b, h_q, s_q), dtype=_FLOAT32)


def traced_decode(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The same through the registered operator: for tracers, and for tensor subclasses (fake tensors among them)."""
    *inputs, out = arguments
    if not isinstance(inputs[0], torch.Tensor):
        raise ValueError(f"q: got {type(inputs[0]).__name__}, wanted a torch tensor")
    if out is None:
        result: tuple[torch.Tensor, torch.Tensor] = torch.ops.flash_mla.dense_decode(*inputs)
        return result
    return out, torch.ops.flash_mla.dense_decode_out(*inputs, out)


def complain(
    q: Any, k_cache: Any, block_table: Any, cache_seqlens: Any, head_dim_v: int, extras: Any = None
) -> None:
    """Shapes from which no outputs can be made: the library says what is wrong with them."""
    _core.decode_workspace_bytes(
        q, k_cache, block_table, cache_seqlens, None, None, None, head_dim_v, None, False, False, "", 0, extras
    )
    raise AssertionError("the library accepted a shape without outputs")


_library = torch.library.Library("flash_mla", "DEF")
_ARGUMENTS = (
    "Tensor q, Tensor k_cache, Tensor block_table, Tensor cache_seqlens, int head_dim_v, float? softmax_scale, bool causal, "
    "bool batch_invariant"
)
_library.define(f"dense_decode({_ARGUMENTS}) -> (Tensor, Tensor)")
_library.define(f"dense_decode_out({_ARGUMENTS}, Tensor(a!) out) -> Tensor")


def _run(*arguments: Any, out: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    arguments = *arguments, out
    result = _core.decode_torch(*(*arguments, None, ALLOCATION))
    return decode_in_steps(*arguments) if result is None else result


def _run_out(*arguments: Any) -> torch.Tensor:
    *inputs, out = arguments
    return _run(*inputs, out=out)[1]


for _key in ("CPU", "CUDA"):
    _library.impl("dense_decode", _run, _key)
    _library.impl("dense_decode_out", _run_out, _key)


@torch.library.register_fake("flash_mla::dense_decode", lib=_library)
def _fake(q: torch.Tensor, k_cache: Any, block_table: Any, cache_seqlens: Any, head_dim_v: int, *_: Any) -> Any:
    return outputs(q, head_dim_v)


@torch.library.register_fake("flash_mla::dense_decode_out", lib=_library)
def _fake_out(*arguments: Any) -> Any:
    q, out = arguments[0], arguments[-1]
    return outputs(q, out.shape[-1])[1]
