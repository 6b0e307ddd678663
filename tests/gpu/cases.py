"""Seeded decode batches that are hard on purpose, made on the device.

Logits of a chosen deviation; keys at random, rising (every tile of 64 raises the running maximum of every row) or with a
dominant last key; value columns with a mean; pages permuted; NaN in every slot that holds no live token and in unused pages;
page ids that do not exist past the length; outputs between guards, filled with NaN.
"""

import math
from dataclasses import dataclass, field

import torch

import flash_mla
import flashmla

D_QK, D_V = 576, 512
WILD_IDS = (2147480000, -1)
GUARD = 4096


@dataclass
class Case:
    lengths: list
    h_q: int = 128
    s_q: int = 1
    h_kv: int = 1
    causal: bool = False
    dtype: torch.dtype = torch.bfloat16
    std: float = 1.0
    keys: str = "random"  # "rising", "last"
    page: int = 64
    layers: int = 1  # pages of so many layers lie between two pages of this one
    tables: str = "permuted"  # "reversed", "shared": the rest of the batch uses the pages of its first half
    wide_q: bool = False  # rows of q 600 apart
    own_scale: bool = False  # softmax_scale passed, not the default
    call: str = "drop_in"  # "native", "cumulative", "invariant"
    poison: float = math.nan
    seed: int = 0
    device: str = "cuda"
    q: torch.Tensor = field(init=False, repr=False)
    k_cache: torch.Tensor = field(init=False, repr=False)
    block_table: torch.Tensor = field(init=False, repr=False)

    def __str__(self):
        some = self.lengths if len(self.lengths) <= 6 else f"{len(self.lengths)} of {min(self.lengths)}..{max(self.lengths)}"
        more = " ".join(
            name
            for name, on in (
                ("causal", self.causal), (f"page {self.page}", self.page != 64), (f"{self.layers} layers", self.layers > 1),
                (self.tables, self.tables != "permuted"), ("wide q", self.wide_q), ("scale", self.own_scale),
            )
            if on
        )  # fmt: skip
        return (
            f"h_q {self.h_q} h_kv {self.h_kv} s_q {self.s_q} lengths {some} {str(self.dtype)[6:]} std {self.std} {self.keys} "
            f"{self.call} seed {self.seed} {more}".rstrip()
        )

    def build(self):
        generator = torch.Generator(self.device).manual_seed(self.seed)
        self.scale = 192**-0.5 if self.own_scale else D_QK**-0.5
        self.cache_seqlens = torch.tensor(self.lengths, dtype=torch.int32, device=self.device).reshape(-1)
        self._build_table(generator)
        self._build_keys(generator)
        self._build_queries(generator)
        return self

    def _build_table(self, generator):
        b = len(self.lengths)
        owners = b // 2 if self.tables == "shared" else b
        if self.tables == "shared":
            self.lengths = [self.lengths[i % owners] for i in range(b)]
            self.cache_seqlens = torch.tensor(self.lengths, dtype=torch.int32, device=self.device)
        pages = -(-self.cache_seqlens.long() // self.page)
        own = pages[:owners]
        self.num_pages = int(own.sum()) + (3 if own.sum() else 0)
        ids = torch.randperm(self.num_pages, generator=generator, device=self.device)
        if self.tables == "reversed":
            ids = torch.arange(self.num_pages, device=self.device).flip(0)
        width = int(pages.max()) + 2 if self.num_pages else 0
        table = torch.empty(b, width, dtype=torch.int32, device=self.device)
        table[:, 0::2], table[:, 1::2] = WILD_IDS
        used = torch.arange(width, device=self.device) < own[:, None]
        table[:owners][used] = ids[: int(own.sum())].int()
        if owners < b:
            table[owners:] = table[torch.arange(owners, b, device=self.device) % owners]
        self.block_table = table
        self.owners = owners

    def _build_keys(self, generator):
        lengths = self.cache_seqlens[: self.owners].long()
        total = int(lengths.sum())
        pool = torch.full(
            (self.num_pages, self.layers, self.page, self.h_kv, D_QK), self.poison, dtype=self.dtype, device=self.device
        )
        self.k_cache = pool[:, self.layers // 2]
        request = torch.repeat_interleave(torch.arange(self.owners, device=self.device), lengths)
        position = torch.arange(total, device=self.device) - (lengths.cumsum(0) - lengths)[request]
        length = lengths[request]
        k = torch.randn(total, self.h_kv, D_QK, generator=generator, device=self.device)
        k[..., :D_V] += 1
        if self.keys != "random":
            if self.keys == "rising":
                extra = math.sqrt(12) * ((position // 64 + 1) / (length // 64 + 1) - 0.5)
            else:
                extra = torch.where(position == length - 1, 5 + (8 + length.log()) / self.std, 0.0)
            k[..., D_QK - 1] = extra[:, None]
        self.request_of_token, self.position_of_token = request, position
        page = self.block_table[request, position // self.page].long()
        self.k_cache[page, position % self.page] = k.to(self.dtype)

    def _build_queries(self, generator):
        b = len(self.lengths)
        q = torch.randn(b, self.s_q, self.h_q, D_QK, generator=generator, device=self.device)
        q[..., :D_V] -= q[..., :D_V].mean(-1, keepdim=True)  # the mean of the values stays out of the logits
        if self.keys == "rising":
            tiles = self.cache_seqlens.float() / 64 + 1
            q *= (math.sqrt(12) / 10 / tiles).view(b, 1, 1, 1)
        if self.keys != "random":
            q[..., D_QK - 1] = math.sqrt(D_QK)
        q *= self.std / (math.sqrt(D_QK) * self.scale)
        rows = torch.full((b, self.s_q, self.h_q, 600), math.nan, dtype=self.dtype, device=self.device)
        self.q = rows[..., :D_QK] if self.wide_q else torch.empty_like(q, dtype=self.dtype)
        self.q.copy_(q)

    def run(self):
        """(out, lse), out and where the call takes it lse written between guards. Raises AssertionError for a broken guard."""
        b = len(self.lengths)
        out, out_guards = _guarded((b, self.s_q, self.h_q, D_V), self.dtype, self.device)
        options = {"softmax_scale": self.scale if self.own_scale else None, "causal": self.causal}
        if self.call == "drop_in":
            metadata, splits = flash_mla.get_mla_metadata()
            got, lse = flash_mla.flash_mla_with_kvcache(
                self.q, self.k_cache, self.block_table, self.cache_seqlens, D_V, metadata, splits, out=out, **options
            )
            lse_guards = []
        else:
            lse, lse_guards = _guarded((b, self.h_q, self.s_q), torch.float32, self.device)
            lengths = {"cache_seqlens": self.cache_seqlens}
            if self.call == "cumulative":
                cumulative = torch.zeros(b + 1, dtype=torch.int32, device=self.device)
                cumulative[1:] = self.cache_seqlens.cumsum(0)
                lengths = {"cu_seqlens_k": cumulative}
            got, lse = flashmla.decode(
                self.q, self.k_cache, self.block_table, **lengths, out=out, lse=lse, d_v=D_V,
                batch_invariant=self.call == "invariant", **options,
            )  # fmt: skip
        assert got.data_ptr() == out.data_ptr(), "out= was not written in place"
        assert all(bool((guard.view(torch.uint8) == 0xFF).all()) for guard in out_guards + lse_guards), "a guard was overwritten"
        return out, lse


def _guarded(shape, dtype, device):
    """A tensor between two guards, everything filled with 0xff bytes: NaN in every format used here."""
    count = math.prod(shape)
    size = torch.empty((), dtype=dtype).element_size()
    memory = torch.full(((count + 2 * GUARD) * size,), 0xFF, dtype=torch.uint8, device=device).view(dtype)
    return memory[GUARD : GUARD + count].view(shape), [memory[:GUARD], memory[GUARD + count :]]
