"""Token-sparse prefill over latents."""

from __future__ import annotations

from typing import Any

from flashmla import _arrays, _core
from flashmla._arguments import integer, plan_options, scale
from flashmla._planned import in_two_steps


def sparse_prefill(
    q: Any,
    kv: Any,
    indices: Any,
    *,
    d_v: int = 512,
    softmax_scale: float | None = None,
    topk_length: Any = None,
    attn_sink: Any = None,
    out: Any = None,
    max_logits: Any = None,
    lse: Any = None,
    batch_invariant: bool = False,
    kernel: str = "",
    num_workers: int = 0,
    workspace: Any = None,
    stream: Any = None,
) -> tuple[Any, Any, Any]:
    """Attention of each query token over the latents that its indices name. Not causal: the indices decide.

    Arguments:
        q: (s_q, h_q, d_qk), bfloat16 or float16.
        kv: (s_kv, 1, d_qk) of q's dtype; the first d_v values of a row are its value.
        indices: (s_q, 1, topk) int32, rows of kv. An index outside [0, s_kv), such as -1, names no row.
        d_v: length of a value.
        softmax_scale: factor of the scores; None means d_qk ** -0.5.
        topk_length: (s_q,) int32: indices at or past it are not read.
        attn_sink: (h_q,) float32: out is multiplied by exp(lse) / (exp(lse) + exp(sink)); lse is returned without it.
        out, max_logits, lse: outputs to write into; fresh ones in q's framework by default.
        batch_invariant, kernel, num_workers, workspace, stream: as in `decode`.

    Returns:
        out (s_q, h_q, d_v) of q's dtype; max_logits (s_q, h_q) float32, the largest scaled score; lse (s_q, h_q) float32, natural
        logarithm. A query token without a row has out 0, max_logits -inf and lse +inf.

    Raises:
        ValueError, NotImplementedError, MemoryError, RuntimeError: as `decode` does.
    """
    address = _arrays.stream_address(q, stream)
    inputs = tuple(_arrays.export(array, address) for array in (q, kv, indices, topk_length, attn_sink))
    options = integer("d_v", d_v), scale(softmax_scale), plan_options(batch_invariant, kernel, num_workers)

    def call(outputs: tuple[Any, ...], memory: Any, execute: bool) -> int:
        return _core.sparse_prefill((*inputs, *outputs), *options, memory, address, execute)

    def fresh() -> tuple[Any, ...]:
        rows = q.shape[:2]
        return _arrays.fill_in(q, (out, (*rows, d_v), None), (max_logits, rows, "float32"), (lse, rows, "float32"))

    out, max_logits, lse = in_two_steps(q, call, (out, max_logits, lse), fresh, workspace, address)
    return out, max_logits, lse
