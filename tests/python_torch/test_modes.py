"""flash_mla_with_kvcache on CPU tensors beyond dense 16-bit decode: indices, extra caches, sinks, fp8 caches."""

import math

import cache_oracle
import mla_oracle
import numpy as np
import pytest
import torch
from mla_cases import make_case
from sparse_cases import SparseCase, cache_tensor
from torch_cases import bits, rounding, to_numpy, to_torch

import flash_mla

FORMATS = ["bf16", "fp16", "fp8_656", "fp8_584"]
PACKED = ["fp8_656", "fp8_584"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("s_q", [1, 3])
def test_sparse(format, s_q):
    SparseCase(format, s_q=s_q).run_and_check()


@pytest.mark.parametrize("format", FORMATS)
def test_everything_at_once(format):
    SparseCase(
        format,
        s_q=2,
        topk=130,
        topk_length=[[130, 7], [0, 65], [1, 0]],
        extra=dict(topk=45, topk_length=[45, 0, 3]),
        sink=np.linspace(-3, 3, 16),
        padding=4 * 576 if format == "fp8_584" else 64,
        softmax_scale=192**-0.5,
    ).run_and_check()


@pytest.mark.parametrize("h_q", [1, 3, 8, 12, 20, 63, 96, 128])
def test_heads(h_q):
    """Field cases 39, 40 and 42."""
    SparseCase("fp8_656", b=2, h_q=h_q).run_and_check()


@pytest.mark.parametrize("topk", [1, 63, 65, 96, 100, 192, 576, 2047])
def test_topk(topk):
    """Field case 38."""
    SparseCase("fp8_656", b=1, topk=topk, num_pages=40, h_q=3).run_and_check()


@pytest.mark.parametrize("format", PACKED)
@pytest.mark.parametrize("page_size", [1, 2, 16, 61, 69, 256, 576])
def test_page_sizes(format, page_size):
    """Field case 45."""
    SparseCase(format, b=1, page_size=page_size, num_pages=-(-200 // page_size), h_q=3).run_and_check()


@pytest.mark.parametrize("byte_dtype", [torch.uint8, torch.int8, torch.float8_e4m3fn])
def test_bytes_by_any_name(byte_dtype):
    case = SparseCase("fp8_656", byte_dtype=byte_dtype, extra={})
    assert case.k_cache.dtype == byte_dtype
    case.run_and_check()


@pytest.mark.parametrize("format", PACKED)
def test_bytes_of_a_page_view(format):
    """The 584-B cache as callers make it: only stride(0) describes real bytes."""
    case = SparseCase(format, page_size=5, padding=576)
    assert case.k_cache.stride(1) == int(format[-3:])
    assert case.k_cache.stride(0) > 5 * case.k_cache.stride(1)
    case.run_and_check()


@pytest.mark.parametrize("sink", [None, -2.0])
@pytest.mark.parametrize("format", ["bf16", "fp8_656"])
def test_rows_without_a_token(format, sink):
    """Field case 7."""
    case = SparseCase(format, b=3, topk=64, sink=None if sink is None else np.full(16, sink, np.float32))
    case.indices_values[[0, 2]] = -1
    out, lse = case.run()
    assert (out[[0, 2]] == 0).all() and torch.isposinf(lse[[0, 2]]).all() and torch.isfinite(lse[1]).all()
    case.check(out, lse)


def test_sink_at_its_limits():
    """-inf has no effect, +inf gives 0, no finite value gives NaN; lse ignores it."""
    case = SparseCase(b=2, h_q=6)
    plain, plain_lse = case.run()
    sink = torch.tensor([-math.inf, math.inf, 3.4e38, -3.4e38, 0.0, 90.0])
    out, lse = case.run(attn_sink=sink)
    assert bits(lse) == bits(plain_lse) and torch.isfinite(out).all()
    assert torch.equal(out[:, :, [0, 3]], plain[:, :, [0, 3]]) and (out[:, :, [1, 2]] == 0).all()
    factor = torch.sigmoid(plain_lse[:, 4:].double() - sink[4:, None].double()).permute(0, 2, 1)[..., None]
    assert torch.allclose(out[:, :, 4:].double(), plain[:, :, 4:].double() * factor, rtol=2**-7, atol=1e-30)


@pytest.mark.parametrize("s_q", [63, 64, 65, 128])
def test_long_prompts_with_lengths(s_q):
    """Field case 15: lanes past topk_length hold ids of NaN tokens and wild numbers."""
    lengths = [[1 + (i * 37) % 64 for i in range(s_q)]]
    SparseCase("fp8_656", b=1, s_q=s_q, h_q=2, topk=64, topk_length=lengths).run_and_check()


def test_batch_of_many():
    """Field case 19: a batch gives what its rows alone give."""
    case = SparseCase("fp8_656", b=37, topk=64, h_q=4, topk_length=[i % 40 for i in range(37)])
    out, lse = case.run_and_check()
    for i in range(0, 37, 6):
        more = {"indices": case.more["indices"][i : i + 1], "topk_length": case.more["topk_length"][i : i + 1]}
        alone, alone_lse = flash_mla.flash_mla_with_kvcache(
            case.q[i : i + 1], case.k_cache, None, None, 512, flash_mla.get_mla_metadata()[0], is_fp8_kvcache=True, **more
        )
        assert bits(alone) == bits(out[i : i + 1]) and bits(alone_lse) == bits(lse[i : i + 1])


def test_dummies_are_ignored():
    case = SparseCase("bf16")
    wanted = bits(case.run()[0])
    dummy = torch.full((1,), 2147480000, dtype=torch.int32)
    assert bits(case.run(block_table=dummy[:, None], cache_seqlens=dummy)[0]) == wanted
    assert bits(case.run(block_table=dummy.long(), cache_seqlens=torch.zeros(0, 5))[0]) == wanted


def test_out_is_written_in_full():
    case = SparseCase("fp8_656", b=3)
    case.indices_values[1] = -1
    out = torch.full((3, 1, 16, 512), math.nan, dtype=torch.bfloat16)
    returned, lse = case.run(out=out)
    assert returned is out
    case.check(out, lse)


def test_no_requests():
    """Field case 9."""
    case = SparseCase("fp8_656")
    case.q, case.more["indices"] = case.q[:0], case.more["indices"][:0]
    out, lse = case.run()
    assert out.shape == (0, 1, 16, 512) and lse.shape == (0, 16, 1)


# ---- dense decode on fp8 caches


def dense_fp8(format, lengths, *, s_q=1, h_q=16, page_size=64, causal=False, cache_scale=1.0, descales=(None, None)):
    """Dense decode of a ragged batch; returns q, cache, table, lengths and the expectation."""
    d_qk = cache_oracle.d_qk_of(format)
    case = make_case(lengths, s_q=s_q, h_q=h_q, d_qk=d_qk, page_size=page_size, causal=causal)
    pool = cache_oracle.Pool(format, case.k_cache.shape[0], page_size)
    slots = np.flatnonzero(np.isfinite(case.k_cache.astype(np.float32)).all(axis=(2, 3)).ravel())
    pool.write(slots, case.k_cache.reshape(-1, d_qk)[slots].astype(np.float32), cache_scale=cache_scale)
    values = pool.read(np.arange(pool.num_slots), cache_scale=cache_scale).reshape(-1, page_size, 1, d_qk)
    return case, pool, values


@pytest.mark.parametrize("format", PACKED)
@pytest.mark.parametrize("s_q, causal", [(1, False), (2, True), (5, True)])
def test_dense_on_records(format, s_q, causal):
    case, pool, values = dense_fp8(format, [70, 0, 1, 63, 200], s_q=s_q, causal=causal)
    q, table, lengths = (to_torch(x, "cpu") for x in (case.q, case.block_table, case.cache_seqlens))
    out, lse = flash_mla.flash_mla_with_kvcache(
        q, cache_tensor(pool), table, lengths, 512, *flash_mla.get_mla_metadata(), causal=causal, is_fp8_kvcache=True
    )
    expected = mla_oracle.decode(
        case.q, values, case.block_table, case.cache_seqlens, causal=causal, rounding=rounding("bfloat16", "cpu", format)
    )
    assert out.dtype == torch.bfloat16
    mla_oracle.check(to_numpy(out), to_numpy(lse), expected)


@pytest.mark.parametrize("byte_dtype", [torch.float8_e4m3fn, torch.uint8, torch.int8])
@pytest.mark.parametrize("descales", ["none", "one", "scalar", "each"])
def test_flat_fp8(byte_dtype, descales):
    """Field case 64: e4m3 q and cache, 20 heads, ragged lengths from 1 to 600."""
    lengths = [1, 600, 0, 64, 333]
    case, pool, values = dense_fp8("fp8_flat", lengths, h_q=20, s_q=2, causal=True, cache_scale=1.0)
    q8 = to_torch(case.q, "cpu").to(torch.float8_e4m3fn)
    q_scale, k_scale = {
        "none": (None, None),
        "one": (torch.tensor([0.5]), torch.tensor([1.25])),
        "scalar": (torch.tensor(0.5), torch.tensor(1.25)),
        "each": (torch.linspace(0.5, 1, 5), torch.linspace(1, 0.25, 5)),
    }[descales]
    table, seqlens = to_torch(case.block_table, "cpu"), to_torch(case.cache_seqlens, "cpu")
    metadata = flash_mla.get_mla_metadata_dense_fp8(seqlens, 40, 1)
    out, lse = flash_mla.flash_mla_with_kvcache_fp8(
        q8, cache_tensor(pool, byte_dtype), table, seqlens, 512, *metadata, causal=True, descale_q=q_scale, descale_k=k_scale
    )
    assert out.dtype == torch.bfloat16 and out.shape == (5, 2, 20, 512) and lse.shape == (5, 20, 2)
    for i in range(5):
        scales = [1.0 if s is None else float(s.reshape(-1)[min(i, s.numel() - 1)]) for s in (q_scale, k_scale)]
        q_exact = (q8[i : i + 1].double() * scales[0]).numpy()
        row = case.block_table[i : i + 1], case.cache_seqlens[i : i + 1]
        expected = mla_oracle.decode(q_exact, values * scales[1], *row, causal=True, dtype="bfloat16")
        mla_oracle.check(to_numpy(out[i : i + 1]), to_numpy(lse[i : i + 1]), expected)


def test_metadata_of_modes():
    """An object of the 2026 form serves one kind of call, and says which."""
    case = SparseCase("fp8_656", extra={})
    metadata, _ = flash_mla.get_mla_metadata()
    case.run_and_check(metadata, None)
    config = metadata.config
    assert config.is_fp8_kvcache and config.topk == 70 and config.page_block_size == 64
    assert config.extra_page_block_size == 2 and config.extra_topk == 40 and config.h_k == 1
    case.run_and_check(metadata, None)
    wider = SparseCase("fp8_656", extra={}, topk=71)
    with pytest.raises(ValueError, match="topk = 70"):
        wider.run(metadata, None)
    without = SparseCase("fp8_656")
    with pytest.raises(ValueError, match="extra"):
        without.run(metadata, None)
    table, num_splits = flash_mla.get_mla_metadata(torch.ones(3, dtype=torch.int32), 16, 1, 16, True, 70)
    case.run_and_check(table, num_splits)
    table.tile_scheduler_metadata.fill_(-7)
    case.run_and_check(table, None)


@pytest.mark.parametrize("format", FORMATS)
def test_switch(format):
    flash_mla.set_batch_invariant(True)
    SparseCase(format).run_and_check()


# ---- what is refused


@pytest.mark.parametrize(
    "name, spoil, got",
    [
        ("indices", lambda t: t[:, 0], "rank 2"),
        ("indices", lambda t: t.long(), "int64"),
        ("indices", lambda t: t[:1], "(1, "),
        ("topk_length", lambda t: t.long(), "int64"),
        ("topk_length", lambda t: t[:1], "1"),
        ("attn_sink", lambda t: t.double(), "float64"),
        ("attn_sink", lambda t: t[:3], "3"),
        ("extra_k_cache", lambda t: t[..., :600], "600"),
        ("extra_k_cache", lambda t: None, "extra"),
        ("extra_indices_in_kvcache", lambda t: None, "extra"),
        ("extra_indices_in_kvcache", lambda t: t[:, 0], "rank 2"),
        ("extra_topk_length", lambda t: t.float(), "float32"),
    ],
)
def test_bad_argument(name, spoil, got):
    """Field cases 53 and 67: a ValueError that names the argument; out stays untouched."""
    case = SparseCase("fp8_656", topk_length=[3, 4, 5], sink=np.zeros(16), extra=dict(topk_length=[1, 2, 3]))
    out = torch.full((3, 1, 16, 512), 3.0, dtype=torch.bfloat16)
    with pytest.raises(ValueError) as caught:
        case.run(**{name: spoil(case.more[name])}, out=out)
    said = str(caught.value)
    assert name.removesuffix("_in_kvcache") in said and got in said, said
    assert (out == 3.0).all()


def test_wrong_records():
    """Field case 67: a record of another size is refused."""
    case = SparseCase("fp8_656")
    for cache in (case.k_cache[..., :528], SparseCase("fp8_584").k_cache):
        case.k_cache = cache
        with pytest.raises(ValueError, match=str(cache.shape[-1])):
            case.run()


def test_causal_with_indices():
    with pytest.raises(ValueError, match="causal"):
        SparseCase("bf16").run(causal=True)


def test_fp8_flag_on_a_16_bit_cache():
    with pytest.raises(ValueError, match="is_fp8_kvcache: got True with a k_cache of bfloat16"):
        SparseCase("bf16").run(is_fp8_kvcache=True)


def test_fp8_entry_point_wants_fp8():
    q = torch.zeros(1, 1, 16, 576, dtype=torch.bfloat16)
    one = torch.ones(1, dtype=torch.int32)
    with pytest.raises(ValueError, match="q: got bfloat16, wanted float8_e4m3fn"):
        flash_mla.flash_mla_with_kvcache_fp8(q, torch.zeros(1, 64, 1, 576).bfloat16(), one[:, None], one, 512, one[:, None], one)
