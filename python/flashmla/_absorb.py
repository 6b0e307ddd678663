"""The two projections around absorbed attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flashmla import _arrays, _core
from flashmla._arguments import shape


def absorb_query(x: Any, weight: Any, *, out: Any = None, stream: Any = None) -> Any:
    """Queries into latent space, where they score cached latents directly: out[..., h, :] = x[..., h, :] W_UK[h].

    Arguments:
        x: (..., h, head_dim), bfloat16, float16 or float32: queries without their rotary part; up to two leading axes.
        weight: (h, head_dim, kv_lora_rank) of x's dtype, W_UK.
        out: (..., h, kv_lora_rank) of x's dtype to write into, such as the first columns of a query (..., h, d_qk); a fresh
            array by default.
        stream: as in `decode`.

    Returns:
        out. Sums are in float32.

    Raises:
        ValueError, NotImplementedError, MemoryError, RuntimeError: as `decode` does.
    """
    return _project(_core.absorb_query, 2, x, weight, out, stream)


def project_output(x: Any, weight: Any, *, out: Any = None, stream: Any = None) -> Any:
    """Latent attention outputs back to values of the heads: out[..., h, :] = W_UV[h] x[..., h, :].

    Arguments:
        x: (..., h, kv_lora_rank), bfloat16, float16 or float32, as `decode` returns it; up to two leading axes.
        weight: (h, head_dim, kv_lora_rank) of x's dtype, W_UV.
        out: (..., h, head_dim) of x's dtype to write into; a fresh array by default.
        stream: as in `decode`.

    Returns:
        out. Sums are in float32.

    Raises:
        ValueError, NotImplementedError, MemoryError, RuntimeError: as `decode` does.
    """
    return _project(_core.project_output, 1, x, weight, out, stream)


def _project(
    call: Callable[[Any, Any, Any, int | None], None], axis: int, x: Any, weight: Any, out: Any, stream: Any
) -> Any:
    """out's last axis is as long as weight's `axis`."""
    address = _arrays.stream_address(x, stream)
    with _arrays.working_on(x, address):
        if out is None:
            width = shape("weight", weight, "h", "head_dim", "kv_lora_rank")[axis]
            out = _arrays.empty(x, (*shape("x", x)[:-1], width), None)
        x_, weight_, out_ = (_arrays.export(array, address) for array in (x, weight, out))
        call(x_, weight_, out_, address)
    return _arrays.deliver(x, out)
