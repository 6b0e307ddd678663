"""Merging partial attention results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flashmla import _arrays, _core
from flashmla._arguments import one_of, shape

_DTYPES = ("bfloat16", "float16", "float32")


def merge(
    outs: Sequence[Any], lses: Sequence[Any], *, out: Any = None, lse: Any = None, dtype: str | None = None, stream: Any = None
) -> tuple[Any, Any]:
    """Attention over all keys from attention over disjoint sets of them: context-parallel ranks, chunked prefill, cascades.

    Arguments:
        outs: one or more arrays (b, s_q, h_q, d_v) or (s_q, h_q, d_v), bfloat16, float16 or float32.
        lses: as many arrays, float32: (b, h_q, s_q) beside outs of rank 4, (s_q, h_q) beside outs of rank 3. A part whose LSE is
            +inf or -inf has no keys, and its out is not read.
        out, lse: outputs of outs[0]'s and lses[0]'s shape to write into; fresh ones by default.
        dtype: element type of a fresh out: "bfloat16", "float16" or "float32"; None means that of outs[0].
        stream: as in `decode`.

    Returns:
        out and lse. A row that no part has keys for has out 0 and lse +inf.

    Raises:
        ValueError, NotImplementedError, MemoryError, RuntimeError: as `decode` does.
    """
    outs, lses = _list("outs", outs), _list("lses", lses)
    first = outs[0]
    address = _arrays.stream_address(first, stream)
    outs_, lses_ = ([_arrays.export(array, address) for array in arrays] for arrays in (outs, lses))
    if dtype is not None:
        one_of("dtype", dtype, _DTYPES)
    with _arrays.working_on(first, address):
        out, lse = _arrays.fill_in(
            first, (out, shape("outs", first), dtype), (lse, shape("lses", lses[0]), "float32")
        )
        _core.merge(outs_, lses_, _arrays.export(out, address), _arrays.export(lse, address), address)
    return _arrays.deliver(first, out), _arrays.deliver(first, lse)


def _list(argument: str, arrays: Any) -> list[Any]:
    """A non-empty list or tuple of arrays; a single array is most likely a mistake."""
    if not isinstance(arrays, list | tuple) or not arrays:
        raise ValueError(f"{argument}: got {type(arrays).__name__}, wanted a non-empty list or tuple of arrays")
    return list(arrays)
