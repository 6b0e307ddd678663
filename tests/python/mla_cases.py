"""Seeded decode inputs with the awkward properties real caches have: permuted pages, poison where no token lives."""

from dataclasses import dataclass, field

import ml_dtypes
import mla_oracle
import numpy as np

import flashmla

DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
WILD_PAGES = (2147480000, -1, 1 << 30)


def cpu_rounding(dtype, format="bf16"):
    """The CPU path with bf16 products rounds weights to bf16 where keys are bf16 values; all others work in fp32."""
    arch = flashmla.info()["devices"][0]["arch"]
    pairs = arch == "avx512_bf16" and dtype == "bfloat16" and format != "fp8_656"
    return mla_oracle.Rounding(weights=dtype if pairs else "float32")


@dataclass
class Case:
    q: np.ndarray
    k_cache: np.ndarray
    block_table: np.ndarray
    cache_seqlens: np.ndarray
    options: dict = field(default_factory=dict)

    @property
    def inputs(self):
        return self.q, self.k_cache, self.block_table, self.cache_seqlens


def make_case(
    lengths,
    *,
    seed=0,
    s_q=1,
    h_q=16,
    h_kv=1,
    d_qk=576,
    page_size=64,
    dtype="bfloat16",
    logit_std=1.0,
    poison=np.nan,
    spare_columns=2,
    **options,
):
    """A case whose logits have about the given standard deviation. Every byte without a live token holds `poison`."""
    random = np.random.default_rng(seed)
    lengths = np.asarray(lengths, np.int32)
    pages_of = [-(-int(length) // page_size) for length in lengths]
    width = max(pages_of, default=0) + spare_columns
    num_pages = sum(pages_of) + 3
    scale = options.get("softmax_scale") or d_qk**-0.5
    kind = DTYPES[dtype]
    q = (random.standard_normal((len(lengths), s_q, h_q, d_qk)) * logit_std / (scale * d_qk**0.5)).astype(kind)
    pool = np.full((num_pages, page_size, h_kv, d_qk), poison).astype(kind)
    table = random.choice(np.array(WILD_PAGES, np.int32), (len(lengths), width))
    free = list(random.permutation(num_pages))
    for request, length in enumerate(lengths):
        for index in range(pages_of[request]):
            page = free.pop()
            table[request, index] = page
            live = min(page_size, int(length) - index * page_size)
            pool[page, :live] = random.standard_normal((live, h_kv, d_qk)).astype(kind)
    return Case(q, pool, table, lengths, options)
