"""Every public name of the package, with the signatures that callers of flash_mla know."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from flashmla._core import decode_torch
from torch import Tensor
from torch.compiler import is_compiling

from flash_mla import _dense, _modes
from flash_mla._metadata import (
    FlashMLASchedMeta,
    check_lengths,
    check_tables,
    check_use,
    get_mla_metadata,
    make_num_splits,
    make_table,
    mark_used,
)
from flash_mla._operators import check_tensor, is_traced
from flash_mla._options import _Switches, batch_invariant, set_batch_invariant
from flash_mla._prefill import flash_mla_sparse_fwd
from flash_mla._varlen import (
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)

__all__ = [
    "FlashMLASchedMeta",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_mla_sparse_fwd",
    "flash_mla_with_kvcache",
    "flash_mla_with_kvcache_fp8",
    "get_mla_metadata",
    "get_mla_metadata_dense_fp8",
    "set_batch_invariant",
]


def flash_mla_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    cache_seqlens: torch.Tensor | None,
    head_dim_v: int,
    tile_scheduler_metadata: FlashMLASchedMeta | torch.Tensor,
    num_splits: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    indices: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices_in_kvcache: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """MLA decode over a paged cache: softmax(softmax_scale * q . k) v for each request's query tokens.

    Arguments:
        q: (b, s_q, h_q, head_dim), bfloat16 or float16, on a GPU or the CPU. Work runs on q's device and torch's current
            stream there.
        k_cache: (num_pages, page_size, h_k, head_dim) of q's dtype, or an fp8 cache of e4m3, int8 or uint8 elements: records of
            656 bytes (head_dim 576) or 584 bytes (head_dim 512). The first head_dim_v values of a token are its value. Pages
            may lie further apart than they are long.
        block_table: (b, max_pages) int32. Entries past a request's length are never read through.
        cache_seqlens: (b,) int32; 0 is legal. With indices, neither this nor block_table is looked at: None will do.
        head_dim_v: length of a value (512).
        tile_scheduler_metadata, num_splits: what get_mla_metadata returned, or any int32 tensors. Results do not depend on
            their contents; an object of get_mla_metadata() serves one kind of call.
        softmax_scale: None means head_dim ** -0.5.
        causal: query token i of s_q sees the first len - s_q + i + 1 cached tokens.
        is_fp8_kvcache: True says that k_cache is an fp8 cache. Which kind follows from its dtype and sizes.
        indices: (b, s_q, topk) int32, the tokens each query token attends to, as page * page_size + offset. An index outside
            the pool, such as -1, names none. Not causal: the indices decide.
        attn_sink: (h_q,) float32: out is multiplied by exp(lse) / (exp(lse) + exp(sink)); lse is returned without it.
        extra_k_cache, extra_indices_in_kvcache: a second pool of the same format, with a page size of its own, and the tokens
            (b, s_q, extra_topk) attended to there.
        topk_length, extra_topk_length: (b,) or (b, s_q) int32; indices at or past it are never read.
        out: (b, s_q, h_q, head_dim_v) of q's dtype to write into.

    Returns:
        out (b, s_q, h_q, head_dim_v), and lse (b, h_q, s_q) float32, the natural-log log-sum-exp of the scaled scores. A query
        token that sees no key has out 0 and lse +inf.

    Raises:
        ValueError: wrong rank, shape, dtype, stride or device, or metadata of another kind of call.
        NotImplementedError: what this build or device cannot do.
    """
    if indices is None and (
        attn_sink is not None
        or extra_k_cache is not None
        or extra_indices_in_kvcache is not None
        or topk_length is not None
        or extra_topk_length is not None
    ):
        _refuse_sparse_arguments(
            attn_sink=attn_sink,
            extra_k_cache=extra_k_cache,
            extra_indices_in_kvcache=extra_indices_in_kvcache,
            topk_length=topk_length,
            extra_topk_length=extra_topk_length,
        )
    if is_fp8_kvcache or indices is not None:
        if indices is not None:
            block_table = cache_seqlens = None
        extras = indices, topk_length, extra_k_cache, extra_indices_in_kvcache, extra_topk_length, attn_sink, None, None
        inputs = q, k_cache, block_table, cache_seqlens, head_dim_v
        return _decode_in_a_mode(
            inputs, tile_scheduler_metadata, num_splits, softmax_scale, causal, is_fp8_kvcache, extras, out
        )
    # From here on every line counts: eager callers time it against a kernel's launch.
    if softmax_scale is not None:
        softmax_scale = float(softmax_scale)
    if type(q) is not Tensor or is_compiling():
        return _dense.traced_decode(
            q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, bool(causal), batch_invariant(), out
        )
    metadata = config = None
    if isinstance(tile_scheduler_metadata, FlashMLASchedMeta):
        metadata = tile_scheduler_metadata
        config = metadata.config
    else:
        check_tables(tile_scheduler_metadata, num_splits)
    result: tuple[torch.Tensor, torch.Tensor] | None = decode_torch(
        q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal, _Switches.batch_invariant, out, config,
        _dense.ALLOCATION,
    )
    if result is None:
        causal = bool(causal)
        if metadata is not None:
            check_use(metadata, q, k_cache, causal)
        result = _dense.decode_in_steps(
            q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal, batch_invariant(), out
        )
    if config is None and metadata is not None and not metadata.have_initialized:
        mark_used(metadata, q, k_cache, causal)
    return result


def _refuse_sparse_arguments(**arguments: Any) -> NoReturn:
    name = next(name for name, value in arguments.items() if value is not None)
    raise ValueError(f"{name}: got a value without indices, wanted None: it belongs to sparse attention")


def _decode_in_a_mode(
    inputs: tuple[Any, ...],
    metadata: FlashMLASchedMeta | torch.Tensor,
    num_splits: torch.Tensor | None,
    softmax_scale: float | None,
    causal: bool,
    is_fp8_kvcache: bool,
    extras: tuple[torch.Tensor | None, ...],
    out: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A call with indices or an fp8 cache: `inputs` are q to head_dim_v, `extras` those of _modes.EXTRAS."""
    q, k_cache = inputs[:2]
    if is_fp8_kvcache and isinstance(k_cache, torch.Tensor) and k_cache.element_size() != 1:
        got = str(k_cache.dtype).removeprefix("torch.")
        raise ValueError(f"is_fp8_kvcache: got True with a k_cache of {got}, wanted float8_e4m3fn, int8 or uint8")
    if softmax_scale is not None:
        softmax_scale = float(softmax_scale)
    causal, is_fp8_kvcache = bool(causal), bool(is_fp8_kvcache)
    arguments = *inputs, softmax_scale, causal, batch_invariant(), extras, out
    if is_traced(q):
        return _modes.decode(*arguments)
    if not isinstance(metadata, FlashMLASchedMeta):
        check_tables(metadata, num_splits)
        return _modes.decode(*arguments)
    indices, _, extra_k_cache, extra_indices, *_ = extras
    sizes = is_fp8_kvcache, _size(indices, -1), _size(extra_k_cache, 1), _size(extra_indices, -1)
    check_use(metadata, q, k_cache, causal, *sizes)
    result = _modes.decode(*arguments)
    if not metadata.have_initialized:
        mark_used(metadata, q, k_cache, causal, *sizes)
    return result


def _size(tensor: Any, axis: int) -> int | None:
    """None for what is not given, and for what the operation will refuse."""
    try:
        return None if tensor is None else int(tensor.shape[axis])
    except (AttributeError, IndexError):
        return None


def get_mla_metadata_dense_fp8(
    cache_seqlens: torch.Tensor, num_q_tokens_per_head_k: int, num_heads_k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Metadata tensors for flash_mla_with_kvcache_fp8: (P, 8) and (b + 1,), int32."""
    check_lengths(cache_seqlens)
    return make_table(cache_seqlens.device), make_num_splits(cache_seqlens.shape[0], cache_seqlens.device)


def flash_mla_with_kvcache_fp8(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    head_dim_v: int,
    tile_scheduler_metadata: FlashMLASchedMeta | torch.Tensor,
    num_splits: torch.Tensor | None,
    softmax_scale: float | None = None,
    causal: bool = False,
    descale_q: torch.Tensor | None = None,
    descale_k: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Dense MLA decode on e4m3 queries over an e4m3 cache, each with one scale.

    Arguments as in flash_mla_with_kvcache, but:
        q: (b, s_q, h_q, head_dim) float8_e4m3fn.
        k_cache: (num_pages, page_size, h_k, head_dim) of e4m3, int8 or uint8 elements, which are e4m3 values.
        descale_q, descale_k: float32 of one element or (b,): what an e4m3 value of q or of the cache is worth. None is 1.0.

    Returns:
        out (b, s_q, h_q, head_dim_v) bfloat16, and lse (b, h_q, s_q) float32.
    """
    check_tensor("q", q)
    if q.dtype != torch.float8_e4m3fn:
        raise ValueError(f"q: got {str(q.dtype).removeprefix('torch.')}, wanted float8_e4m3fn")
    extras = None, None, None, None, None, None, _one_axis(descale_q), _one_axis(descale_k)
    inputs = q, k_cache, block_table, cache_seqlens, head_dim_v
    return _decode_in_a_mode(
        inputs, tile_scheduler_metadata, num_splits, softmax_scale, causal, True, extras, None
    )


def _one_axis(scale: torch.Tensor | None) -> torch.Tensor | None:
    """One-element tensors come as scalars too."""
    return scale.reshape(1) if isinstance(scale, torch.Tensor) and scale.numel() == 1 else scale
