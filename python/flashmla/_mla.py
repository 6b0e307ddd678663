"""flashmla.MLA: multi-head latent attention as a torch module, over a cache of latents or on plain queries, keys and values."""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
from flash_mla import flash_attn_varlen_func, flash_mla_with_kvcache, get_mla_metadata

import flashmla

_16_BIT = (torch.bfloat16, torch.float16)
# (kv_lora_rank, rope_dim) of the fp8 records. The 584-byte one serves 512 values as keys and as values.
_FP8_RECORDS = {(512, 64): "fp8_656", (448, 64): "fp8_584"}
# Per-head keys and values of 128 as records of the (320, 256) form: 128 of value, 64 unused, 128 of key.
_PACKED, _PACKED_VALUES, _KEY_AT, _WIDTH = 320, 256, 192, 128


class LatentCache:
    """Pages of latents, made by MLA.new_cache. `pages` is the tensor (num_pages, page, 1, record) that decode takes.

    A token's slot is page * page_size + offset.
    """

    def __init__(self, pages: torch.Tensor, format: str, kv_lora_rank: int, rope_dim: int) -> None:
        self.pages = pages
        self.format = format
        self.kv_lora_rank = kv_lora_rank
        self.rope_dim = rope_dim

    @property
    def page_size(self) -> int:
        return self.pages.shape[1]

    def __repr__(self) -> str:
        return f"LatentCache({self.format}, {self.pages.shape[0]} pages of {self.page_size} tokens, {self.pages.device})"

    def append(
        self,
        latent: torch.Tensor,
        rope: torch.Tensor | None,
        slot_ids: torch.Tensor,
        *,
        positions: torch.Tensor | None = None,
        cos_sin: torch.Tensor | None = None,
        rotary_style: str = "interleaved",
    ) -> None:
        """Writes tokens, quantising as the format asks.

        latent (.., kv_lora_rank), rope (.., rope_dim) and slot_ids (..) have the same leading axes; a negative slot skips its
        token. With positions (..) and cos_sin the rotary part is rotated first: see flashmla.append.
        """
        flashmla.append(
            latent.reshape(-1, self.kv_lora_rank),
            rope.reshape(-1, self.rope_dim) if rope is not None and self.rope_dim else None,
            self.pages,
            slot_ids.reshape(-1),
            positions=None if positions is None else positions.reshape(-1),
            cos_sin=cos_sin,
            rotary_style=rotary_style,
        )


class MLA(torch.nn.Module):
    """Multi-head latent attention.

    Arguments:
        num_heads: query heads.
        head_dim: width of an unabsorbed head, without its rotary part, and of a value.
        kv_lora_rank: width of a latent.
        rope_dim: width of the rotary part of queries and keys.
        use_fp8: caches made by new_cache hold fp8 records: 656 bytes for (kv_lora_rank, rope_dim) = (512, 64), 584 for (448, 64).
        sparse_prefill: the model chooses the tokens to attend to (indices). A call without indices computes the exact dense
            result, and says so once through logging.
        device, dtype: of the parameters. dtype is also that of 16-bit caches (bfloat16 for float32 parameters).
        softmax_scale: of attention over a cache; None means (head_dim + rope_dim) ** -0.5.

    Parameters W_UK and W_UV have the shape (num_heads, head_dim, kv_lora_rank). The module is called in one of two ways:

    forward(q_nope, q_rope, cache=..., block_table=..., cache_seqlens=..., indices=None, causal=True): attention over a cache that
        holds the tokens already, new ones included. q_nope (b, s, num_heads, head_dim) is absorbed into latent space, and what
        it finds is projected back: (b, s, num_heads, head_dim). cache is what new_cache made (or its pages tensor); block_table
        (b, max_pages) and cache_seqlens (b,) are int32. With indices (b, s, topk) int32, slots of the cache, the indices decide
        what is seen; block_table, cache_seqlens and causal do nothing. No gradients.

    forward(query, key, value, causal=True, indices=None): plain multi-head attention on (b, s, num_heads * head_dim), head_dim 128,
        with the scale head_dim ** -0.5; key and value may have another length. Differentiable. With indices (b, s, topk) int32,
        tokens of the request's own keys, the same for every head, they decide what is seen, and there are no gradients.

    float32 inputs are computed in bfloat16 (projections over a cache in float32) and returned as float32. Parameters that sit on
    another device follow the inputs.
    """

    W_UK: torch.nn.Parameter
    W_UV: torch.nn.Parameter

    def __init__(
        self,
        num_heads: int,
        head_dim: int = 128,
        kv_lora_rank: int = 512,
        rope_dim: int = 64,
        use_fp8: bool = False,
        sparse_prefill: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.bfloat16,
        softmax_scale: float | None = None,
    ) -> None:
        super().__init__()
        if dtype not in (*_16_BIT, torch.float32):
            raise ValueError(f"dtype: got {dtype}, wanted torch.bfloat16, torch.float16 or torch.float32")
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.kv_lora_rank = kv_lora_rank
        self.rope_dim = rope_dim
        self.use_fp8 = use_fp8
        self.sparse_prefill = sparse_prefill
        self.softmax_scale = (head_dim + rope_dim) ** -0.5 if softmax_scale is None else float(softmax_scale)
        shape = num_heads, head_dim, kv_lora_rank
        self.W_UK = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.W_UV = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (self.W_UK, self.W_UV):
            torch.nn.init.normal_(weight, std=self.kv_lora_rank**-0.5)

    def extra_repr(self) -> str:
        return (
            f"num_heads={self.num_heads}, head_dim={self.head_dim}, kv_lora_rank={self.kv_lora_rank}, rope_dim={self.rope_dim}, "
            f"use_fp8={self.use_fp8}, sparse_prefill={self.sparse_prefill}, softmax_scale={self.softmax_scale:.6g}"
        )

    def new_cache(self, pages: int, page: int = 64) -> LatentCache:
        """A cache of `pages` pages of `page` tokens each on the parameters' device. Its bytes are not initialised."""
        dims = self.kv_lora_rank, self.rope_dim
        if self.use_fp8 and dims not in _FP8_RECORDS:
            raise ValueError(
                f"use_fp8: got (kv_lora_rank, rope_dim) = {dims}, wanted one of {', '.join(map(str, _FP8_RECORDS))}, "
                "for which there is an fp8 record"
            )
        if self.use_fp8:
            format = _FP8_RECORDS[dims]
        else:
            format = "fp16" if self.W_UK.dtype == torch.float16 else "bf16"
        tensor = flashmla.empty_cache(pages, page, format=format, d_qk=sum(dims), like=self.W_UK.detach())
        return LatentCache(tensor, format, *dims)

    def forward(
        self,
        q_nope: torch.Tensor | None = None,
        q_rope: torch.Tensor | None = None,
        value: torch.Tensor | None = None,
        *,
        query: torch.Tensor | None = None,
        key: torch.Tensor | None = None,
        cache: LatentCache | torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
        cache_seqlens: torch.Tensor | None = None,
        indices: torch.Tensor | None = None,
        causal: bool = True,
    ) -> torch.Tensor:
        if self.sparse_prefill and indices is None:
            _say_dense()
        if cache is not None:
            return self._over_cache(q_nope, q_rope, cache, block_table, cache_seqlens, indices, causal)
        if block_table is not None or cache_seqlens is not None:
            raise ValueError("cache: got None with a block_table or cache_seqlens, wanted what new_cache made")
        tensors = q_nope if query is None else query, q_rope if key is None else key, value
        q, k, v = self._split_heads(*tensors)
        return self._plain(q, k, v, causal, indices)

    # ---- over a cache

    def _over_cache(
        self,
        q_nope: torch.Tensor | None,
        q_rope: torch.Tensor | None,
        cache: LatentCache | torch.Tensor,
        block_table: torch.Tensor | None,
        cache_seqlens: torch.Tensor | None,
        indices: torch.Tensor | None,
        causal: bool,
    ) -> torch.Tensor:
        q_nope = self._checked("q_nope", q_nope, self.head_dim)
        b, s = q_nope.shape[:2]
        pages = cache.pages if isinstance(cache, LatentCache) else cache
        d_qk = self.kv_lora_rank + self.rope_dim
        rows = b * s, self.num_heads

        q = q_nope.new_empty((*rows, d_qk))
        w_uk = self.W_UK.detach().to(q.device, q.dtype)
        flashmla.absorb_query(q_nope.reshape(*rows, self.head_dim), w_uk, out=q[..., : self.kv_lora_rank])
        if self.rope_dim:
            rope = self._checked("q_rope", q_rope, self.rope_dim)
            if rope.shape[:2] != (b, s) or rope.device != q.device:
                got = f"shape {tuple(rope.shape)} on {rope.device}"
                raise ValueError(f"q_rope: got {got}, wanted the leading axes {(b, s)} of q_nope on {q.device}")
            q[..., self.kv_lora_rank :] = rope.reshape(*rows, self.rope_dim)
        if q.dtype == torch.float32:
            q = q.to(torch.float16 if pages.dtype == torch.float16 else torch.bfloat16)

        latents, _ = flash_mla_with_kvcache(
            q.view(b, s, self.num_heads, d_qk),
            pages,
            block_table,
            cache_seqlens,
            512 if d_qk == 512 else self.kv_lora_rank,
            get_mla_metadata()[0],
            softmax_scale=self.softmax_scale,
            causal=causal and indices is None,
            is_fp8_kvcache=pages.element_size() == 1,
            indices=indices,
        )
        latents = latents.to(q_nope.dtype).view(*rows, -1)[..., : self.kv_lora_rank]
        w_uv = self.W_UV.detach().to(q.device, latents.dtype)
        out: torch.Tensor = flashmla.project_output(latents, w_uv)
        return out.view(b, s, self.num_heads, self.head_dim)

    def _checked(self, name: str, tensor: torch.Tensor | None, width: int) -> torch.Tensor:
        wanted = f"a tensor (b, s, {self.num_heads}, {width})"
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{name}: got {type(tensor).__name__}, wanted {wanted}")
        if tensor.dim() != 4 or tensor.shape[2:] != (self.num_heads, width):
            raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, wanted {wanted}")
        _check_dtype(name, tensor)
        return tensor.detach()

    # ---- on queries, keys and values

    def _split_heads(self, *tensors: torch.Tensor | None) -> list[torch.Tensor]:
        split: list[torch.Tensor] = []
        width = self.num_heads * self.head_dim
        for name, tensor in zip(("query", "key", "value"), tensors, strict=True):
            if not isinstance(tensor, torch.Tensor):
                raise ValueError(f"{name}: got {type(tensor).__name__}, wanted a tensor (b, s, {width}), or a cache")
            if tensor.dim() != 3 or tensor.shape[2] != width:
                raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, wanted (b, s, num_heads * head_dim = {width})")
            _check_dtype(name, tensor)
            if split and (tensor.shape[0], tensor.dtype) != (split[0].shape[0], split[0].dtype):
                raise ValueError(f"{name}: got {tensor.dtype} for {tensor.shape[0]} requests, wanted query's dtype and b")
            split.append(tensor.reshape(*tensor.shape[:2], self.num_heads, self.head_dim))
        if split[1].shape != split[2].shape:
            raise ValueError(f"value: got {split[2].shape[1]} tokens, wanted the {split[1].shape[1]} of key")
        return split

    def _plain(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, indices: torch.Tensor | None
    ) -> torch.Tensor:
        dtype = q.dtype
        if dtype == torch.float32:
            q, k, v = q.bfloat16(), k.bfloat16(), v.bfloat16()
        scale = self.head_dim**-0.5
        if indices is None:
            requests = torch.arange(q.shape[0] + 1, dtype=torch.int32, device=q.device)
            out, _ = flash_attn_varlen_func(
                q.flatten(0, 1),
                k.flatten(0, 1),
                v.flatten(0, 1),
                requests * q.shape[1],
                requests * k.shape[1],
                q.shape[1],
                k.shape[1],
                softmax_scale=scale,
                causal=causal,
            )
        else:
            out = _attend_to(q, k, v, indices, scale)
        return out.reshape(*q.shape[:2], self.num_heads * self.head_dim).to(dtype)


def _attend_to(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, indices: torch.Tensor, scale: float
) -> torch.Tensor:
    """Multi-head attention of (b, s, h, 128) to chosen keys, by sparse decode on records that hold a head's key and value."""
    b, s_kv, h, width = k.shape
    if width != _WIDTH:
        raise NotImplementedError(f"head_dim: got {width}, wanted {_WIDTH}: sparse attention of plain heads has no other width")
    if indices.dim() != 3 or indices.shape[:2] != q.shape[:2] or indices.dtype != torch.int32:
        got = f"{str(indices.dtype).removeprefix('torch.')} of shape {tuple(indices.shape)}"
        raise ValueError(f"indices: got {got}, wanted int32 of shape ({b}, {q.shape[1]}, topk)")
    page = max(1, s_kv)  # one page a request
    records = k.new_zeros((b, page, h, _PACKED))
    records[:, :s_kv, :, :_WIDTH], records[:, :s_kv, :, _KEY_AT:] = v.detach(), k.detach()
    queries = q.new_zeros((*q.shape[:3], _PACKED))
    queries[..., _KEY_AT:] = q.detach()
    first = torch.arange(b, dtype=torch.int32, device=q.device)[:, None, None] * page
    slots = torch.where((indices >= 0) & (indices < s_kv), indices + first, -1)
    out, _ = flash_mla_with_kvcache(
        queries, records, None, None, _PACKED_VALUES, get_mla_metadata()[0], softmax_scale=scale, indices=slots
    )
    return out[..., :_WIDTH]


def _check_dtype(name: str, tensor: torch.Tensor) -> None:
    if tensor.dtype not in (*_16_BIT, torch.float32):
        raise ValueError(f"{name}: got {str(tensor.dtype).removeprefix('torch.')}, wanted bfloat16, float16 or float32")


@functools.cache
def _say_dense() -> None:
    logging.getLogger("flashmla").warning(
        "MLA(sparse_prefill=True) was called without indices: computing the exact dense result, since which pairs of tokens may be "
        "skipped is the model's choice"
    )
