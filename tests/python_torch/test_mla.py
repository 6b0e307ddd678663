"""flashmla.MLA: over a cache, on plain heads, and what it refuses."""

import logging
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch_cases import bits

import flash_mla
import flashmla
from flashmla import MLA

UNIT = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
DIMS = [(512, 64), (448, 64), (256, 64), (512, 0)]


def relative_error(got, wanted):
    return ((got.double() - wanted).norm() / wanted.norm()).item()


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


class Filled:
    """A module, and a cache of a ragged batch on shuffled pages; everything else in the cache is NaN."""

    def __init__(self, lengths, *, s=1, num_heads=4, head_dim=32, dims=(512, 64), page=16, **options):
        torch.manual_seed(0)
        self.mla = MLA(num_heads, head_dim, *dims, **options)
        self.lengths, self.s, self.page = lengths, s, page
        dtype = self.mla.W_UK.dtype
        b, width = len(lengths), max(-(-n // page) for n in lengths) + 1
        self.cache = self.mla.new_cache(sum(-(-n // page) for n in lengths) + 2, page)
        self.cache.pages.untyped_storage().fill_(255)
        pages = torch.randperm(self.cache.pages.shape[0], generator=seeded()).tolist()
        self.block_table = torch.full((b, width), 2147480000, dtype=torch.int32)
        self.cache_seqlens = torch.tensor(lengths, dtype=torch.int32)
        for i, n in enumerate(lengths):
            for j in range(-(-n // page)):
                self.block_table[i, j] = pages.pop()
        self.slots = [self.block_table[i, torch.arange(n) // page] * page + torch.arange(n) % page for i, n in enumerate(lengths)]
        random = seeded(1)
        self.latents = [torch.randn(n, dims[0], generator=random).to(dtype) for n in lengths]
        self.ropes = [torch.randn(n, dims[1], generator=random).to(dtype) for n in lengths]
        for slots, latent, rope in zip(self.slots, self.latents, self.ropes, strict=True):
            self.cache.append(latent, rope, slots.to(torch.int32))
        self.q_nope = torch.randn(b, s, num_heads, head_dim, generator=random).to(dtype)
        self.q_rope = torch.randn(b, s, num_heads, dims[1], generator=random).to(dtype)

    def run(self, **more):
        where = dict(block_table=self.block_table, cache_seqlens=self.cache_seqlens)
        return self.mla(self.q_nope, self.q_rope, cache=self.cache, **{**where, **more})

    def expanded(self, causal=True, rows=None):
        """Ordinary multi-head attention in float64 over what the cache holds, keys and values expanded for every head."""
        w_uk, w_uv = self.mla.W_UK.detach().double(), self.mla.W_UV.detach().double()
        d_qk, rank = self.mla.kv_lora_rank + self.mla.rope_dim, self.mla.kv_lora_rank
        out = torch.zeros(*self.q_nope.shape, dtype=torch.double)
        for i, slots in enumerate(self.slots):
            if len(slots) == 0:
                continue
            held = flashmla.gather(self.cache.pages, slots.to(torch.int32), dtype="float32", d_qk=d_qk).double()
            keys = torch.einsum("nr,hdr->hnd", held[:, :rank], w_uk)
            values = torch.einsum("nr,hdr->hnd", held[:, :rank], w_uv)
            scores = torch.einsum("shd,hnd->hsn", self.q_nope[i].double(), keys)
            scores += torch.einsum("shd,nd->hsn", self.q_rope[i].double(), held[:, rank:])
            n, s = len(slots), self.s
            hidden = torch.arange(n) >= n - s + torch.arange(s)[:, None] + 1 if causal else torch.zeros(s, n, dtype=torch.bool)
            if rows is not None:
                hidden = ~rows[i]
            scores = (self.mla.softmax_scale * scores).masked_fill(hidden, -torch.inf)
            weights = torch.nan_to_num(scores.softmax(-1))
            out[i] = torch.einsum("hsn,hnd->shd", weights, values)
        return out


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("s", [1, 6])
def test_over_a_cache(dims, dtype, s):
    case = Filled([70, 6, 0, 33], s=s, dims=dims, dtype=dtype)
    out = case.run()
    assert out.shape == case.q_nope.shape and out.dtype == dtype and not out.requires_grad
    assert relative_error(out, case.expanded()) < 4 * UNIT[dtype]
    assert (out[2] == 0).all()


@pytest.mark.parametrize("dims, record", [((512, 64), 656), ((448, 64), 584)])
@pytest.mark.parametrize("s", [1, 6])
def test_over_an_fp8_cache(dims, record, s):
    """Against the expanded computation on what the cache really holds, the error is that of bfloat16; quantising costs more."""
    case = Filled([70, 6, 33], s=s, dims=dims, use_fp8=True)
    assert case.cache.format == f"fp8_{record}" and case.cache.pages.shape[1:] == (16, 1, record)
    out = case.run()
    assert relative_error(out, case.expanded()) < 4 * UNIT[torch.bfloat16]
    exact = Filled([70, 6, 33], s=s, dims=dims)
    assert 2**-8 < relative_error(out, exact.expanded()) < 2**-3


@pytest.mark.parametrize("use_fp8", [False, True])
def test_chosen_tokens(use_fp8):
    """With indices these alone are seen, causal or not."""
    case = Filled([70, 6, 33], s=2, use_fp8=use_fp8)
    rows = [torch.rand(2, n, generator=seeded()) < 0.5 for n in case.lengths]
    rows[1][0] = False
    indices = torch.full((3, 2, 80), -1, dtype=torch.int32)
    for i, slots in enumerate(case.slots):
        for t in range(2):
            chosen = slots[rows[i][t]]
            indices[i, t, : len(chosen)] = chosen
    out = case.run(indices=indices)
    assert relative_error(out, case.expanded(rows=rows)) < 4 * UNIT[torch.bfloat16]
    assert (out[1, 0] == 0).all()
    assert bits(case.mla(case.q_nope, case.q_rope, cache=case.cache, indices=indices)) == bits(out)


def test_all_tokens_chosen_is_dense():
    case = Filled([33], s=1)
    dense, chosen = case.run(), case.run(indices=case.slots[0].to(torch.int32).view(1, 1, -1))
    assert relative_error(chosen, dense.double()) < UNIT[torch.bfloat16]


def test_not_causal():
    case = Filled([70, 6], s=6)
    assert relative_error(case.run(causal=False), case.expanded(causal=False)) < 4 * UNIT[torch.bfloat16]


def test_steps_equal_one_prompt():
    """Tokens appended and decoded one by one see what the same tokens see in one causal call."""
    case = Filled([20, 9], s=5)
    whole = case.run()
    for t in range(5):
        step = case.mla(
            case.q_nope[:, t : t + 1],
            case.q_rope[:, t : t + 1],
            cache=case.cache,
            block_table=case.block_table,
            cache_seqlens=case.cache_seqlens - 4 + t,
        )
        assert relative_error(step, whole[:, t : t + 1].double()) < UNIT[torch.bfloat16]


def test_scale():
    """A model's scale belongs to the unabsorbed head; a factor (YaRN) comes in through softmax_scale."""
    assert MLA(2).softmax_scale == 192**-0.5
    case = Filled([70, 6], softmax_scale=0.3)
    assert case.mla.softmax_scale == 0.3
    assert relative_error(case.run(), case.expanded()) < 4 * UNIT[torch.bfloat16]


def test_float32_queries():
    """Absorbed and projected in float32, attended in bfloat16, returned as float32."""
    case = Filled([70, 6])
    case.q_nope, case.q_rope = case.q_nope.float(), case.q_rope.float()
    out = case.run()
    assert out.dtype == torch.float32 and relative_error(out, case.expanded()) < 3 * UNIT[torch.bfloat16]


def test_float32_parameters():
    case = Filled([70, 6], dtype=torch.float32)
    assert case.cache.pages.dtype == torch.bfloat16
    assert relative_error(case.run(), case.expanded()) < 3 * UNIT[torch.bfloat16]


def test_a_plain_tensor_as_cache():
    case = Filled([70, 6], use_fp8=True)
    wanted = bits(case.run())
    case.cache = case.cache.pages
    assert bits(case.run()) == wanted


def test_strided_queries():
    """q_nope and q_rope as slices of one projection, heads outside of tokens."""
    case = Filled([70, 6], s=3)
    wanted = bits(case.run())
    whole = torch.cat([case.q_nope, case.q_rope], dim=-1).transpose(1, 2).contiguous().transpose(1, 2)
    case.q_nope, case.q_rope = whole[..., :32], whole[..., 32:]
    assert bits(case.run()) == wanted


def test_append_rotates():
    """positions and cos_sin: the same as rotating before."""
    case = Filled([40])
    angles = torch.outer(torch.arange(64.0), 10000.0 ** -(torch.arange(32) / 32))
    cos_sin = torch.cat([angles.cos(), angles.sin()], dim=1)
    positions = torch.arange(40)
    case.cache.append(case.latents[0], case.ropes[0], case.slots[0].to(torch.int32), positions=positions, cos_sin=cos_sin)
    got = flashmla.gather(case.cache.pages, case.slots[0].to(torch.int32), dtype="float32")[:, 512:]
    pairs = torch.view_as_complex(case.ropes[0].float().view(40, 32, 2)) * torch.polar(torch.ones(40, 32), angles[:40])
    assert torch.allclose(got, torch.view_as_real(pairs).reshape(40, 64), rtol=2**-7, atol=2**-7)


# ---- parity in float32


@pytest.mark.parametrize("num_heads, head_dim, dims", [(16, 128, (512, 64)), (3, 32, (512, 64)), (8, 64, (256, 64))])
def test_parity_in_float32(num_heads, head_dim, dims):
    """Absorbing changes nothing: below 1e-5 in float32.

    The decode kernels take 16-bit queries, so what is float32 here is the library's own projections, with the softmax between them
    in torch; the simulator below runs the whole of it in the library.
    """
    torch.manual_seed(0)
    mla = MLA(num_heads, head_dim, *dims, dtype=torch.float32)
    rank, n, s = dims[0], 300, 3
    random = seeded(2)
    latent, rope = torch.randn(n, rank, generator=random), torch.randn(n, dims[1], generator=random)
    q_nope = torch.randn(s, num_heads, head_dim, generator=random)
    q_rope = torch.randn(s, num_heads, dims[1], generator=random)
    w_uk, w_uv = mla.W_UK.detach(), mla.W_UV.detach()

    query = flashmla.absorb_query(q_nope, w_uk)
    weights = (mla.softmax_scale * (query @ latent.T + q_rope @ rope.T)).softmax(-1)
    absorbed = flashmla.project_output(weights @ latent, w_uv)

    keys, values = (torch.einsum("nr,hdr->hnd", latent, w) for w in (w_uk, w_uv))
    scores = torch.einsum("shd,hnd->hsn", q_nope, keys) + torch.einsum("shd,nd->hsn", q_rope, rope)
    expanded = torch.einsum("hsn,hnd->shd", (mla.softmax_scale * scores).softmax(-1), values)
    assert (absorbed - expanded).abs().max() < 1e-5 and expanded.abs().max() > 0.1


def test_simulator():
    """The published interface, DeepSeek's shape: 2 * heads * head_dim values a token against latent + rope, parity below 1e-5."""
    result = flashmla.FlashMLADecodingSimulator(
        num_heads=128, head_dim=128, latent_dim=512, rope_dim=64, page_block_size=64
    ).simulate_decoding_step(batch_size=2, context_len=70)
    assert list(result) == [
        "batch_size",
        "context_len",
        "total_tokens_evaluated",
        "mha_memory_mb",
        "flashmla_memory_mb",
        "memory_reduction_ratio",
        "numerical_max_error",
        "mathematical_parity",
    ]
    assert (result["batch_size"], result["context_len"], result["total_tokens_evaluated"]) == (2, 70, 140)
    assert result["mha_memory_mb"] == 140 * 2 * 128 * 128 * 2 / 2**20
    assert result["flashmla_memory_mb"] == 140 * 576 * 2 / 2**20
    assert 1 - 1 / result["memory_reduction_ratio"] == pytest.approx(0.982, abs=5e-4)  # 98.2% less
    assert result["numerical_max_error"] < 1e-5 and result["mathematical_parity"] is True


# ---- on queries, keys and values


def plain_inputs(b=2, s=33, s_kv=None, heads=3, dtype=torch.bfloat16):
    random = seeded(3)
    return [torch.randn(b, n, heads * 128, generator=random).to(dtype) for n in (s, s_kv or s, s_kv or s)]


def plain_wanted(query, key, value, mask, heads=3):
    """(b, s, s_kv) mask of what is seen, or None."""
    q, k, v = (x.detach().double().view(*x.shape[:2], heads, 128).transpose(1, 2) for x in (query, key, value))
    scores = 128**-0.5 * q @ k.transpose(-1, -2)
    weights = torch.nan_to_num(scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1))
    return (weights @ v).transpose(1, 2).flatten(2)


def causal_mask(b, s, s_kv):
    return (torch.arange(s_kv) < s_kv - s + torch.arange(s)[:, None] + 1).expand(b, s, s_kv)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("s, s_kv", [(33, 33), (5, 70), (4, 2)])
def test_plain_attention(dtype, causal, s, s_kv):
    inputs = plain_inputs(s=s, s_kv=s_kv, dtype=dtype)
    out = MLA(3)(*inputs, causal=causal)
    assert out.dtype == dtype and out.shape == inputs[0].shape
    mask = causal_mask(2, s, s_kv) if causal else torch.ones(2, s, s_kv, dtype=torch.bool)
    wanted = plain_wanted(*(x.bfloat16() if dtype == torch.float32 else x for x in inputs), mask)
    assert relative_error(out, wanted) < 2 * UNIT.get(dtype, UNIT[torch.bfloat16])


def test_keywords():
    query, key, value = plain_inputs()
    mla = MLA(3)
    assert bits(mla(query=query, key=key, value=value)) == bits(mla(query, key, value))
    case = Filled([70, 6])
    where = dict(cache=case.cache, block_table=case.block_table, cache_seqlens=case.cache_seqlens)
    assert bits(case.mla(q_nope=case.q_nope, q_rope=case.q_rope, **where)) == bits(case.run())


def test_gradients():
    inputs = [x.requires_grad_() for x in plain_inputs(dtype=torch.float32)]
    exact = [x.detach().bfloat16().double().requires_grad_() for x in inputs]
    split = [x.view(2, 33, 3, 128).transpose(1, 2) for x in exact]
    wanted = torch.nn.functional.scaled_dot_product_attention(*split, is_causal=True).transpose(1, 2).flatten(2)
    dout = torch.randn(wanted.shape, generator=seeded(4)).bfloat16()
    out = MLA(3)(*inputs)
    for got, theirs in zip(
        torch.autograd.grad(out, inputs, dout.float()), torch.autograd.grad(wanted, exact, dout.double()), strict=True
    ):
        assert got.dtype == torch.float32 and relative_error(got, theirs) < 4 * UNIT[torch.bfloat16]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("s, s_kv", [(9, 33), (9, 5)])
def test_plain_attention_to_chosen_tokens(dtype, s, s_kv):
    inputs = plain_inputs(s=s, s_kv=s_kv, dtype=dtype)
    indices = torch.randint(-2, s_kv + 2, (2, s, 20), generator=seeded(), dtype=torch.int32)
    indices[1, 3] = -1
    for i, t in np.ndindex(2, s):  # a token named twice would count twice
        row = indices[i, t]
        _, first = np.unique(row.numpy(), return_index=True)
        keep = torch.zeros(20, dtype=torch.bool)
        keep[first] = True
        indices[i, t] = torch.where(keep, row, -1)
    mask = torch.zeros(2, s, s_kv, dtype=torch.bool)
    for i, t in np.ndindex(2, s):
        row = indices[i, t]
        mask[i, t, row[(row >= 0) & (row < s_kv)].long()] = True
    out = MLA(3, sparse_prefill=True)(*inputs, indices=indices)
    wanted = plain_wanted(*(x.bfloat16() for x in inputs), mask)
    assert out.dtype == dtype and relative_error(out, wanted) < 2 * UNIT[torch.bfloat16]
    assert (out[1, 3] == 0).all()


def test_no_tokens():
    mla = MLA(3)
    empty = torch.zeros(2, 0, 384).bfloat16()
    assert mla(empty, empty, empty).shape == (2, 0, 384)
    query = plain_inputs()[0]
    assert (mla(query, empty, empty) == 0).all()
    assert (mla(query, empty, empty, indices=torch.zeros(2, 33, 4, dtype=torch.int32)) == 0).all()


def test_sparse_prefill_without_indices_says_so_once(caplog):
    from flashmla import _mla

    _mla._say_dense.cache_clear()
    inputs = plain_inputs()
    with caplog.at_level(logging.INFO, logger="flashmla"):
        wanted = MLA(3)(*inputs)
        assert not caplog.records
        for mla in (MLA(3, sparse_prefill=True), MLA(3, sparse_prefill=True, use_fp8=True)):
            for _ in range(2):
                assert bits(mla(*inputs)) == bits(wanted)
    assert len(caplog.records) == 1 and "exact dense" in caplog.text


def test_module_habits():
    mla = MLA(2, dtype=torch.float16)
    assert list(mla.state_dict()) == ["W_UK", "W_UV"] and mla.W_UK.shape == mla.W_UV.shape == (2, 128, 512)
    other = MLA(2, dtype=torch.float16)
    other.load_state_dict(mla.state_dict())
    assert torch.equal(other.W_UV, mla.W_UV)
    assert "num_heads=2" in repr(mla) and "fp16" in repr(mla.new_cache(3))
    assert MLA(2, device="meta").W_UK.is_meta and mla.bfloat16().new_cache(3).format == "bf16"


def test_fresh_cache():
    cache = MLA(2, use_fp8=True).new_cache(5)
    assert cache.pages.shape == (5, 64, 1, 656) and cache.page_size == 64 and cache.pages.dtype == torch.uint8
    cache = MLA(2, kv_lora_rank=448, use_fp8=True).new_cache(5, 3)
    assert cache.pages.stride(0) == 2304  # 3 * 584 rounded up to a multiple of 576


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: MLA(2, dtype=torch.float64), "dtype: got torch.float64"),
        (lambda: MLA(2, kv_lora_rank=256, use_fp8=True).new_cache(1), "use_fp8: got .*256, 64"),
        (lambda: MLA(3)(*plain_inputs()[:2]), "value: got NoneType"),
        (lambda: MLA(3)(), "query: got NoneType"),
        (lambda: MLA(4)(*plain_inputs()), "query: got shape .* 512"),
        (lambda: MLA(3)(plain_inputs()[0], *plain_inputs(b=1)[1:]), "key: got"),
        (lambda: MLA(3)(plain_inputs()[0].double(), *plain_inputs()[1:]), "query: got float64"),
        (lambda: MLA(3)(*plain_inputs()[:2], plain_inputs(s=3)[2]), "value: got 3 tokens"),
        (lambda: MLA(3)(*plain_inputs(), block_table=torch.zeros(1)), "cache: got None"),
        (lambda: MLA(3)(*plain_inputs(), indices=torch.zeros(2, 33, dtype=torch.int32)), "indices: got int32"),
        (lambda: Filled([5]).mla(torch.zeros(1, 1, 4, 33), None, cache=Filled([5]).cache), "q_nope: got shape"),
        (lambda: Filled([5]).mla(None, None, cache=Filled([5]).cache), "q_nope: got NoneType"),
        (lambda: Filled([5]).mla(torch.zeros(1, 1, 4, 32).bfloat16(), None, cache=Filled([5]).cache), "q_rope: got NoneType"),
        (lambda: Filled([5]).run(block_table=None), "block_table"),
        (lambda: Filled([5]).run(cache_seqlens=torch.ones(1)), "cache_seqlens: got dtype float32"),
    ],
)
def test_refusals(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_import_is_lazy():
    """`import flashmla` never imports torch; `flashmla.MLA` does."""
    code = "import sys, flashmla; assert 'torch' not in sys.modules; flashmla.MLA; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
    with pytest.raises(AttributeError, match="banana"):
        flashmla.banana  # noqa: B018
    assert "MLA" in dir(flashmla)


def test_the_drop_in_is_what_runs():
    """The module adds projections and nothing else: the attention between them is flash_mla_with_kvcache."""
    case = Filled([70, 6])
    query = torch.cat([flashmla.absorb_query(case.q_nope, case.mla.W_UK.detach()), case.q_rope], dim=-1)
    latents, _ = flash_mla.flash_mla_with_kvcache(
        query,
        case.cache.pages,
        case.block_table,
        case.cache_seqlens,
        512,
        flash_mla.get_mla_metadata()[0],
        softmax_scale=96**-0.5,
        causal=True,
    )
    assert bits(flashmla.project_output(latents, case.mla.W_UV.detach())) == bits(case.run())
