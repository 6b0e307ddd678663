"""Sparse and fp8 decode cases as torch tensors, with poison wherever no token lives, held against the float64 oracle."""

import attention_oracle
import cache_oracle
import ml_dtypes
import numpy as np
import torch
from torch_cases import DTYPES, rounding, to_numpy, to_torch

import flash_mla

WILD = (-1, -(2**31), 2**31 - 1, 2147480000)


def random_pool(random, format, num_pages, page_size, padding=0):
    """Every slot but each seventh holds a token; the others and all padding hold 0xFF, NaN in every format."""
    pool = cache_oracle.Pool(format, num_pages, page_size, padding=padding)
    live = np.array([slot for slot in range(pool.num_slots) if slot % 7 != 3], np.int64)
    spread = 2.0 ** random.integers(-3, 4, (len(live), 1))
    pool.write(live, random.standard_normal((len(live), pool.d_qk)) * spread)
    return pool, live


def cache_tensor(pool, byte_dtype=torch.uint8):
    array = pool.array()
    if pool.format in cache_oracle.WIDE:
        bits = torch.from_numpy(array.view(np.int16))
        return bits.view(torch.bfloat16 if pool.format == "bf16" else torch.float16)
    return torch.from_numpy(array).view(byte_dtype)


def random_indices(random, live, shape, lengths=None):
    """Live slots, a wild one here and there; past `lengths` (b, s_q) anything."""
    indices = random.choice(live, shape).astype(np.int64)
    wild = random.random(shape) < 0.1
    indices[wild] = random.choice(WILD, wild.sum())
    if lengths is not None:
        past = np.arange(shape[-1]) >= np.asarray(lengths)[..., None]
        indices[past] = random.choice(WILD, past.sum())
    return indices.astype(np.int32)


class SparseCase:
    """q and caches of one call of flash_mla_with_kvcache with indices."""

    def __init__(
        self,
        format="bf16",
        *,
        b=3,
        s_q=1,
        h_q=16,
        topk=70,
        page_size=64,
        num_pages=4,
        padding=0,
        dtype=None,
        extra=None,
        topk_length=None,
        sink=None,
        seed=0,
        byte_dtype=torch.uint8,
        **options,
    ):
        random = np.random.default_rng(seed)
        self.pool, live = random_pool(random, format, num_pages, page_size, padding)
        self.dtype = dtype or ("float16" if format == "fp16" else "bfloat16")
        kind = np.float16 if self.dtype == "float16" else ml_dtypes.bfloat16
        self.q_values = random.standard_normal((b, s_q, h_q, self.pool.d_qk)).astype(kind)
        lengths = None if topk_length is None else np.broadcast_to(np.reshape(topk_length, (b, -1)), (b, s_q))
        self.indices_values = random_indices(random, live, (b, s_q, topk), lengths)
        self.options = dict(options)
        self.q, self.k_cache = to_torch(self.q_values, "cpu"), cache_tensor(self.pool, byte_dtype)
        self.more = {"indices": torch.from_numpy(self.indices_values)}
        self.oracle = {"topk_length": topk_length}
        if topk_length is not None:
            self.more["topk_length"] = torch.tensor(topk_length, dtype=torch.int32)
        if sink is not None:
            self.oracle["attn_sink"] = np.asarray(sink, np.float32)
            self.more["attn_sink"] = torch.from_numpy(self.oracle["attn_sink"])
        if extra is not None:
            self._add_extra(random, format, (b, s_q), byte_dtype, **extra)

    def _add_extra(self, random, format, rows, byte_dtype, *, topk=40, page_size=2, num_pages=30, topk_length=None):
        pool, live = random_pool(random, format, num_pages, page_size, padding=16)
        lengths = None if topk_length is None else np.broadcast_to(np.reshape(topk_length, (rows[0], -1)), rows)
        indices = random_indices(random, live, (*rows, topk), lengths)
        self.more["extra_k_cache"] = cache_tensor(pool, byte_dtype)
        self.more["extra_indices_in_kvcache"] = torch.from_numpy(indices)
        if topk_length is not None:
            self.more["extra_topk_length"] = torch.tensor(topk_length, dtype=torch.int32)
        self.oracle["extra"] = pool.read(np.arange(pool.num_slots)), indices, topk_length

    @property
    def is_fp8(self):
        return self.pool.format.startswith("fp8")

    def run(self, metadata=None, num_splits=None, *, block_table=None, cache_seqlens=None, **more):
        if metadata is None:
            metadata, num_splits = flash_mla.get_mla_metadata()
        arguments = {"is_fp8_kvcache": self.is_fp8, **self.options, **self.more, **more}
        return flash_mla.flash_mla_with_kvcache(
            self.q, self.k_cache, block_table, cache_seqlens, 512, metadata, num_splits, **arguments
        )

    def expected(self):
        tokens = self.pool.read(np.arange(self.pool.num_slots))
        return attention_oracle.sparse_decode(
            self.q_values,
            tokens,
            self.indices_values,
            rounding=rounding(self.dtype, "cpu", self.pool.format),
            softmax_scale=self.options.get("softmax_scale"),
            **self.oracle,
        )

    def check(self, out, lse):
        assert out.dtype == DTYPES[self.dtype] and lse.dtype == torch.float32
        attention_oracle.check_rows(to_numpy(out), to_numpy(lse), self.expected(), lse_first_heads=True)

    def run_and_check(self, *metadata, **more):
        out, lse = self.run(*metadata, **more)
        self.check(out, lse)
        return out, lse
