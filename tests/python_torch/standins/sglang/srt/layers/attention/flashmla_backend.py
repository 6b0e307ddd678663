"""Stand-in: a decode backend with graph state."""

import torch
from sgl_kernel.flash_mla import flash_mla_with_kvcache, get_mla_metadata

PAGE_SIZE = 64


class Backend:
    def __init__(self, num_heads, max_bs, max_pages, *, is_fp8=False, num_draft_tokens=0, num_sms=132):
        self.num_heads, self.is_fp8, self.num_draft_tokens = num_heads, is_fp8, num_draft_tokens
        self.graph_table = torch.full((max_bs, max_pages), 1, dtype=torch.int32)
        self.graph_metadata = torch.empty((num_sms, 8), dtype=torch.int32)
        self.graph_splits = torch.empty(max_bs + 1, dtype=torch.int32)

    def metadata(self, seq_lens, query_len=1):
        return get_mla_metadata(seq_lens.to(torch.int32), query_len * self.num_heads, 1, is_fp8_kvcache=self.is_fp8)

    def refresh(self, block_table, seq_lens, query_len=1):
        """Static buffers refreshed by copy_; views of them serve this batch size."""
        bs, width = block_table.shape
        self.graph_table.fill_(-1)
        self.graph_table[:bs, :width].copy_(block_table)
        metadata, num_splits = self.metadata(seq_lens, query_len)
        rows = metadata.shape[0]
        self.graph_metadata[:rows].copy_(metadata)
        self.graph_splits[: bs + 1].copy_(num_splits)
        return self.graph_metadata[:rows], self.graph_splits[: bs + 1]

    def forward(self, q, cache, block_table, seq_lens, metadata, num_splits, scale, descale=None):
        """q (tokens, heads * d); the cache is one row a token."""
        bs = seq_lens.shape[0]
        q = q.view(bs, -1, self.num_heads, 576)
        options = {}
        if self.is_fp8:
            q = q.to(torch.float8_e4m3fn)
            one = torch.ones((1,), dtype=torch.float32) if descale is None else descale.reshape(1)
            options = dict(descale_q=one, descale_k=one)
        out, lse = flash_mla_with_kvcache(
            q=q,
            k_cache=cache.view(-1, PAGE_SIZE, 1, 576),
            block_table=block_table[:bs],
            cache_seqlens=seq_lens.to(torch.int32),
            head_dim_v=512,
            tile_scheduler_metadata=metadata,
            num_splits=num_splits,
            softmax_scale=scale,
            causal=True,
            **options,
        )
        return out.view(-1, self.num_heads * 512), lse

    def forward_with_stray_descales(self, q, cache, block_table, seq_lens):
        """16-bit tensors, yet descales are passed."""
        one = torch.ones((1,), dtype=torch.float32)
        metadata, num_splits = self.metadata(seq_lens)
        return flash_mla_with_kvcache(
            q, cache, block_table, seq_lens, 512, metadata, num_splits, None, True, descale_q=one, descale_k=one
        )


def forward_sparse(q, cache, indices, scale, sink=None):
    from sgl_kernel import flash_mla_with_kvcache

    lengths = torch.ones(q.shape[0], dtype=torch.int32)
    metadata, num_splits = get_mla_metadata(lengths, q.shape[1] * q.shape[2], 1, q.shape[2], True, indices.shape[-1])
    return flash_mla_with_kvcache(
        q=q,
        k_cache=cache,
        cache_seqlens=lengths,
        head_dim_v=512,
        tile_scheduler_metadata=metadata,
        num_splits=num_splits,
        softmax_scale=scale,
        indices=indices,
        block_table=torch.empty((q.shape[0], 0), dtype=torch.int32),
        is_fp8_kvcache=True,
    )


def prefill_sparse(q, kv, indices, scale):
    from sgl_kernel import flash_mla_sparse_fwd

    out, _, _ = flash_mla_sparse_fwd(q=q, kv=kv, indices=indices, sm_scale=scale, d_v=512)
    return out
