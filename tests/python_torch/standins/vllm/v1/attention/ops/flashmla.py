"""Stand-in: hands the vendored functions on when the extensions are there, functions that raise when they are not."""

import torch

try:
    import vllm._flashmla_C  # noqa: F401

    _available = True
except ImportError:
    _available = False


def _is_flashmla_available():
    return (True, None) if _available else (False, "vllm._flashmla_C is not available")


def is_flashmla_dense_supported():
    return _is_flashmla_available()


def _unavailable(*_, **__):
    raise RuntimeError(_is_flashmla_available()[1])


if _is_flashmla_available()[0]:
    from vllm.third_party.flashmla.flash_mla_interface import (
        FlashMLASchedMeta,
        flash_attn_varlen_func,
        flash_mla_sparse_fwd,
        flash_mla_with_kvcache,
        get_mla_metadata,
    )
else:

    class FlashMLASchedMeta:
        pass

    flash_attn_varlen_func = flash_mla_sparse_fwd = flash_mla_with_kvcache = get_mla_metadata = _unavailable


def get_mla_metadata_dense_fp8(cache_seqlens, num_q_tokens_per_head_k, num_heads_k):
    if not _is_flashmla_available()[0]:
        _unavailable()
    return torch.ops._flashmla_extension_C.get_mla_decoding_metadata_dense_fp8(
        cache_seqlens, num_q_tokens_per_head_k, num_heads_k
    )


def flash_mla_with_kvcache_fp8(
    q,
    k_cache,
    block_table,
    cache_seqlens,
    head_dim_v,
    tile_scheduler_metadata,
    num_splits,
    softmax_scale=None,
    causal=False,
    descale_q=None,
    descale_k=None,
):
    if not _is_flashmla_available()[0]:
        _unavailable()
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    return torch.ops._flashmla_extension_C.fwd_kvcache_mla_fp8(
        q,
        k_cache,
        head_dim_v,
        cache_seqlens,
        block_table,
        scale,
        causal,
        tile_scheduler_metadata,
        num_splits,
        descale_q,
        descale_k,
    )
