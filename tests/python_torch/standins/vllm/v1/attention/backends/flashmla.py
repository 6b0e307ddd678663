"""Stand-in: an attention backend. Everything is imported by name, before install() in some tests and after it in others."""

import torch
from vllm.v1.attention.ops.flashmla import (
    FlashMLASchedMeta,
    flash_mla_sparse_fwd,
    flash_mla_with_kvcache,
    flash_mla_with_kvcache_fp8,
    get_mla_metadata,
    get_mla_metadata_dense_fp8,
    is_flashmla_dense_supported,
)

flash_attn_varlen_func = "another library's function of the same name"


class Backend:
    """Dense decode with persistent buffers, as for full CUDA graphs."""

    def __init__(self, num_heads, max_requests, *, is_fp8=False, batch_invariant=False, num_sms=132):
        supported, reason = is_flashmla_dense_supported()
        assert supported, reason
        self.num_heads, self.is_fp8, self.batch_invariant = num_heads, is_fp8, batch_invariant
        self.table_buffer = torch.zeros((num_sms, 8), dtype=torch.int32)
        self.splits_buffer = torch.empty(max_requests + 1, dtype=torch.int32)

    def build(self, seq_lens, query_len):
        """Only the first value is kept; the fp8 pair is copied into the buffers and assigned to its fields."""
        tokens = query_len * self.num_heads
        metadata, _ = get_mla_metadata(seq_lens, tokens, 1, is_fp8_kvcache=self.is_fp8)
        assert isinstance(metadata, FlashMLASchedMeta)
        if self.is_fp8:
            table, num_splits = get_mla_metadata_dense_fp8(seq_lens, tokens, 1)
            rows, entries = table.size(0), num_splits.size(0)
            assert rows <= self.table_buffer.size(0) and entries <= self.splits_buffer.size(0)
            self.table_buffer[:rows].copy_(table)
            self.splits_buffer[:entries].copy_(num_splits)
            metadata.tile_scheduler_metadata = self.table_buffer[:rows]
            metadata.num_splits = self.splits_buffer[:entries]
        return metadata

    def forward(self, q, cache, block_table, seq_lens, metadata, scale, q_scale=None, k_scale=None):
        """q (tokens, heads, d) and a cache without a head axis, as the engine keeps them."""
        b = seq_lens.shape[0]
        q = q.view(b, -1, *q.shape[1:])
        if self.batch_invariant and not self.is_fp8:
            table = torch.zeros((1, 8), dtype=torch.int32)
            table[0, 2], table[0, 3] = b - 1, block_table.shape[-1]
            metadata.tile_scheduler_metadata = table
            metadata.num_splits = torch.zeros((b + 1,), dtype=torch.int32)
        common = dict(
            q=q, k_cache=cache.unsqueeze(-2), block_table=block_table, cache_seqlens=seq_lens, head_dim_v=512, softmax_scale=scale
        )
        if not self.is_fp8:
            return flash_mla_with_kvcache(**common, tile_scheduler_metadata=metadata, causal=True)
        return flash_mla_with_kvcache_fp8(
            **common,
            tile_scheduler_metadata=metadata.tile_scheduler_metadata,
            num_splits=metadata.num_splits,
            causal=True,
            descale_q=q_scale.reshape(1),
            descale_k=k_scale.reshape(1),
        )


class SparseBackend:
    """Token-sparse layers that share one metadata object a step; heads padded to 64 by the caller."""

    def __init__(self):
        self.metadata = get_mla_metadata()[0]

    def decode(self, q, cache, indices, scale):
        """All tokens as one request, with dummies where the kernel needs neither table nor lengths."""
        padded = q.new_zeros((1, q.shape[0], 64, q.shape[2]))
        padded[:, :, : q.shape[1]] = q
        dummy = torch.zeros((1, 1), dtype=torch.int32)
        out, lse = flash_mla_with_kvcache(
            q=padded,
            k_cache=cache.view(torch.uint8).unsqueeze(-2),
            block_table=dummy,
            head_dim_v=512,
            cache_seqlens=torch.full((1,), 65536, dtype=torch.int32),
            tile_scheduler_metadata=self.metadata,
            is_fp8_kvcache=True,
            indices=indices.unsqueeze(0),
            softmax_scale=scale,
        )
        return out[0, :, : q.shape[1]], lse[0, : q.shape[1]].transpose(0, 1)

    def decode_windowed(self, q, window_cache, window, lengths, sink, extra_cache, extra, extra_lengths, scale, output):
        """A sliding window and compressed tokens behind it; writes into a buffer of the caller."""
        out, _ = flash_mla_with_kvcache(
            q=q.unsqueeze(1),
            k_cache=window_cache.unsqueeze(-2),
            block_table=None,
            head_dim_v=512,
            tile_scheduler_metadata=self.metadata,
            cache_seqlens=None,
            is_fp8_kvcache=True,
            indices=window,
            topk_length=lengths,
            softmax_scale=scale,
            attn_sink=sink,
            extra_k_cache=None if extra_cache is None else extra_cache.unsqueeze(-2),
            extra_indices_in_kvcache=extra,
            extra_topk_length=extra_lengths,
            out=output.unsqueeze(1),
        )
        return out

    def prefill(self, q, kv, indices, scale, lengths, sink, output):
        return flash_mla_sparse_fwd(
            q=q,
            kv=kv.view(-1, 1, q.shape[-1]),
            indices=indices.unsqueeze(1),
            sm_scale=scale,
            attn_sink=sink,
            topk_length=lengths,
            out=output,
        )
