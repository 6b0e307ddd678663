"""Every public name of the package, with the signatures that callers of flash_mla know."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from flash_mla import _dense
from flash_mla._metadata import (
    FlashMLASchedMeta,
    check_lengths,
    check_tables,
    check_use,
    get_mla_metadata,
    make_tables,
    mark_used,
)
from flash_mla._options import batch_invariant, not_there, set_batch_invariant

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
        k_cache: (num_pages, page_size, h_k, head_dim) of q's dtype; the first head_dim_v values of a token are its value.
        block_table: (b, max_pages) int32. Entries past a request's length are never read through.
        cache_seqlens: (b,) int32; 0 is legal.
        head_dim_v: length of a value (512).
        tile_scheduler_metadata, num_splits: what get_mla_metadata returned, or any int32 tensors. Results do not depend on
            their contents; an object of get_mla_metadata() serves one kind of call.
        softmax_scale: None means head_dim ** -0.5.
        causal: query token i of s_q sees the first len - s_q + i + 1 cached tokens.
        is_fp8_kvcache, indices: fp8 caches and sparse attention; not available yet.
        attn_sink, extra_k_cache, extra_indices_in_kvcache, topk_length, extra_topk_length: belong to sparse attention.
        out: (b, s_q, h_q, head_dim_v) of q's dtype to write into.

    Returns:
        out (b, s_q, h_q, head_dim_v), and lse (b, h_q, s_q) float32, the natural-log log-sum-exp of the scaled scores. A query
        token that sees no key has out 0 and lse +inf.

    Raises:
        ValueError: wrong rank, shape, dtype, stride or device, or metadata of another kind of call.
        NotImplementedError: what this build or device cannot do.
    """
    if is_fp8_kvcache or indices is not None:
        not_there("sparse attention (indices)" if indices is not None else "is_fp8_kvcache=True")
    if (
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
    if softmax_scale is not None:
        softmax_scale = float(softmax_scale)
    causal = bool(causal)
    arguments = q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal, batch_invariant(), out
    if torch.compiler.is_compiling() or type(q) is not torch.Tensor:
        return _dense.traced_decode(*arguments)
    if not isinstance(tile_scheduler_metadata, FlashMLASchedMeta):
        check_tables(tile_scheduler_metadata, num_splits)
        return _dense.decode(*arguments)
    use = check_use(tile_scheduler_metadata, q, k_cache, causal)
    result = _dense.decode(*arguments)
    if not tile_scheduler_metadata.have_initialized:
        mark_used(tile_scheduler_metadata, use, q.device)
    return result


def _refuse_sparse_arguments(**arguments: Any) -> NoReturn:
    name = next(name for name, value in arguments.items() if value is not None)
    raise ValueError(f"{name}: got a value without indices, wanted None: it belongs to sparse attention")


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
    """Sparse prefill: not available yet."""
    not_there("flash_mla_sparse_fwd")


def get_mla_metadata_dense_fp8(
    cache_seqlens: torch.Tensor, num_q_tokens_per_head_k: int, num_heads_k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Metadata tensors for flash_mla_with_kvcache_fp8: (P, 8) and (b + 1,), int32."""
    check_lengths(cache_seqlens)
    return make_tables(cache_seqlens.shape[0], cache_seqlens.device)


def flash_mla_with_kvcache_fp8(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    head_dim_v: int,
    tile_scheduler_metadata: torch.Tensor,
    num_splits: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    descale_q: torch.Tensor | None = None,
    descale_k: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Dense decode on e4m3 queries and caches: not available yet."""
    not_there("flash_mla_with_kvcache_fp8")


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
    """Dense multi-head prefill: not available yet."""
    not_there("flash_attn_varlen_func")


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
    """Dense multi-head prefill on packed q | k | v: not available yet."""
    not_there("flash_attn_varlen_qkvpacked_func")


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
    """Dense multi-head prefill on packed k | v: not available yet."""
    not_there("flash_attn_varlen_kvpacked_func")
