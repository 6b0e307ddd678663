"""append, gather, copy_pages and convert against the NumPy encoders and decoders, to the byte, in pools with guard bytes."""

import ml_dtypes
import numpy as np
import pytest
from cache_oracle import E4M3, FORMATS, ROPE, Pool
from hypothesis import given, settings
from hypothesis import strategies as st

import flashmla

ROW_DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}


def rows_of(random, count, width, dtype, hard):
    """Rows whose groups differ in size by powers of ten; hard ones also hold zeros, infinities and what does not fit."""
    rows = random.standard_normal((count, width)) * 10.0 ** random.integers(-6, 4, (count, 1))
    if hard:
        kind = random.integers(0, 40, rows.shape)
        rows[kind == 0] = 0
        rows[kind == 1] = np.inf
        rows[kind == 2] = -1e30
        rows[kind == 3] *= 2.0**-20
    with np.errstate(over="ignore"):
        return rows.astype(dtype)


def split(pool, rows):
    return rows[:, : pool.d_qk - ROPE], rows[:, pool.d_qk - ROPE :]


@given(
    name=st.sampled_from(FORMATS),
    page_size=st.sampled_from([1, 2, 7, 64]),
    padding=st.sampled_from([0, 64, 656]),
    count=st.integers(0, 12),
    dtype=st.sampled_from(sorted(ROW_DTYPES)),
    slot_dtype=st.sampled_from([np.int32, np.int64]),
    power_of_two=st.booleans(),
    cache_scale=st.sampled_from([1.0, 0.037, 2.0**-7]),
    hard=st.booleans(),
    byte_dtype=st.sampled_from([np.uint8, np.int8, E4M3]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=80, deadline=None)
def test_append(name, page_size, padding, count, dtype, slot_dtype, power_of_two, cache_scale, hard, byte_dtype, seed):
    """Every byte of the pool, guards included: slots in any order, some skipped, some given twice."""
    random = np.random.default_rng(seed)
    pool, wanted = (Pool(name, 3, page_size, padding=padding) for _ in range(2))
    rows = rows_of(random, count, pool.d_qk, ROW_DTYPES[dtype], hard)
    slots = random.integers(-1, pool.num_slots, count).astype(slot_dtype)
    flashmla.append(
        *split(pool, rows), pool.array(byte_dtype), slots, cache_scale=cache_scale, power_of_two_scales=power_of_two
    )
    for slot, row in zip(slots, rows, strict=True):
        if slot >= 0:
            wanted.write([slot], row[None], power_of_two=power_of_two, cache_scale=cache_scale)
    assert (pool.guarded == wanted.guarded).all()


@pytest.mark.parametrize("name", FORMATS)
def test_nan_stays_nan(name):
    pool = Pool(name, 1, 2)
    rows = np.ones((1, pool.d_qk), np.float32)
    rows[0, ::50] = np.nan
    flashmla.append(*split(pool, rows), pool.array(), np.zeros(1, np.int32))
    assert (np.isnan(pool.read([0])) == np.isnan(rows)).all()


def rotated(rope, positions, cos_sin, style):
    cos, sin = np.split(cos_sin[positions].astype(np.float64), 2, axis=1)
    rope = rope.astype(np.float64)
    if style == "interleaved":
        x, y = rope[:, 0::2], rope[:, 1::2]
        return np.stack([x * cos - y * sin, x * sin + y * cos], axis=2).reshape(rope.shape)
    x, y = np.split(rope, 2, axis=1)
    return np.concatenate([x * cos - y * sin, x * sin + y * cos], axis=1)


@pytest.mark.parametrize("style", ["interleaved", "halves"])
@pytest.mark.parametrize("name", FORMATS)
def test_append_rotates_by_position(name, style):
    random = np.random.default_rng(0)
    pool = Pool(name, 2, 8)
    rows = random.standard_normal((9, pool.d_qk)).astype(ml_dtypes.bfloat16)
    positions = random.integers(0, 50, 9)
    angles = np.arange(50)[:, None] * 10000.0 ** (-np.arange(ROPE // 2) / (ROPE // 2))
    cos_sin = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    slots = random.permutation(pool.num_slots)[:9]
    latent, rope = split(pool, rows)
    flashmla.append(latent, rope, pool.array(), slots, positions=positions, cos_sin=cos_sin, rotary_style=style)
    wanted = rotated(rope, positions, cos_sin, style)
    unit = {"fp16": 2.0**-11, "fp8_flat": 2.0**-4}.get(name, 2.0**-8)
    error = np.abs(pool.read(slots)[:, -ROPE:] - wanted)
    assert (error <= unit * np.abs(wanted) * 1.001 + (2.0**-10 if name == "fp8_flat" else 1e-6)).all()
    plain = Pool(name, 2, 8)
    plain.write(slots, rows)
    assert (pool.read(slots)[:, :-ROPE] == plain.read(slots)[:, :-ROPE]).all()


def filled_pool(random, name, pages, page_size, padding, cache_scale=1.0):
    """A pool whose tokens are all written."""
    pool = Pool(name, pages, page_size, padding=padding)
    rows = random.standard_normal((pool.num_slots, pool.d_qk)) * 10.0 ** random.integers(-3, 3, (pool.num_slots, 1))
    pool.write(np.arange(pool.num_slots), rows, power_of_two=bool(random.integers(2)), cache_scale=cache_scale)
    return pool


def as_rows(values, dtype):
    """Exact values as a row dtype holds them: through float32, like the library."""
    return np.float32(values).astype(dtype)


@given(
    name=st.sampled_from(FORMATS),
    page_size=st.sampled_from([1, 5, 64]),
    padding=st.sampled_from([0, 576]),
    dtype=st.sampled_from(sorted(ROW_DTYPES)),
    cache_scale=st.sampled_from([1.0, 0.037]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, deadline=None)
def test_gather(name, page_size, padding, dtype, cache_scale, seed):
    """By slot with holes, and whole requests; every row is written, the cache is not."""
    random = np.random.default_rng(seed)
    pool = filled_pool(random, name, 4, page_size, padding, cache_scale)
    before = pool.guarded.copy()
    slots = random.integers(-2, pool.num_slots, 9).astype(np.int32)
    wanted = np.where(slots[:, None] < 0, 0, pool.read(np.maximum(slots, 0), cache_scale=cache_scale))
    out = np.full((9, pool.d_qk), np.nan, ROW_DTYPES[dtype])
    assert flashmla.gather(pool.array(), slots, out=out, cache_scale=cache_scale) is out
    assert (out == as_rows(wanted, out.dtype)).all()

    table = np.array([[3, 1, -7], [2, 1 << 30, -1], [0, 2, 1]], np.int32)
    lengths = np.array([random.integers(0, 2 * page_size + 1), random.integers(0, page_size + 1), page_size])
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tokens = [table[i, t // page_size] * page_size + t % page_size for i in range(3) for t in range(lengths[i])]
    out = flashmla.gather(pool.array(), block_table=table, cu_seqlens=cu_seqlens, dtype=dtype, cache_scale=cache_scale)
    assert out.dtype == ROW_DTYPES[dtype] and out.shape == (len(tokens), pool.d_qk)
    assert (out == as_rows(pool.read(np.array(tokens, int), cache_scale=cache_scale), out.dtype)).all()
    assert (pool.guarded == before).all()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("same_pool", [False, True])
def test_copy_pages(name, same_pool):
    random = np.random.default_rng(0)
    source = filled_pool(random, name, 5, 6, 128)
    destination = source if same_pool else Pool(name, 7, 6, padding=32, fill=0xAA)
    before = destination.guarded.copy()
    records = source.raw[:, : 6 * source.array().strides[1]].copy()
    pairs = np.array([[4, 0], [1, 3]], np.int64)
    flashmla.copy_pages(source.array(), destination.array(), pairs)
    for page_from, page_to in pairs:
        assert (destination.raw[page_to, : records.shape[1]] == records[page_from]).all()
        assert (destination.raw[page_to, -32:] == before[page_to + 1, -32:]).all()  # the guards beside the page
    untouched = [i for i in range(destination.num_pages) if i not in pairs[:, 1]]
    assert (destination.raw[untouched] == before[1:-1][untouched]).all()
    assert (destination.guarded[[0, -1]] == before[[0, -1]]).all()


def pairs_of_formats():
    return [(a, b) for a in FORMATS for b in FORMATS if (a == "fp8_584") + (b == "fp8_584") != 1 or "656" not in a + b]


@pytest.mark.parametrize("source_format, format", pairs_of_formats())
def test_convert(source_format, format):
    """Through float32, as decoding and encoding would do; padding stays as it is."""
    random = np.random.default_rng(1)
    d_qk = 512 if "fp8_584" in (source_format, format) else 576
    source = Pool(source_format, 3, 5, d_qk=d_qk, padding=64)
    source.write(np.arange(15), random.standard_normal((15, d_qk)) * 10.0 ** random.integers(-3, 3, (15, 1)), cache_scale=0.5)
    destination, wanted = (Pool(format, 3, 5, d_qk=d_qk, padding=192) for _ in range(2))
    values = np.float32(source.read(np.arange(15), cache_scale=0.5))
    wanted.write(np.arange(15), values, cache_scale=0.25, power_of_two=False)
    returned = flashmla.convert(
        source.array(), destination.array(), d_qk=d_qk, source_scale=0.5, destination_scale=0.25, power_of_two_scales=False
    )
    assert np.shares_memory(returned, destination.raw)
    assert (destination.guarded == wanted.guarded).all()


def test_convert_makes_the_destination():
    source = filled_pool(np.random.default_rng(0), "bf16", 2, 4, 0)
    made = flashmla.convert(source.array(), format="fp8_656")
    wanted = Pool("fp8_656", 2, 4)
    wanted.write(np.arange(8), source.read(np.arange(8)))
    assert made.shape == (2, 4, 1, 656) and made.dtype == np.uint8 and (made == wanted.array()).all()
    assert (flashmla.gather(made, np.arange(8)) == as_rows(wanted.read(np.arange(8)), ml_dtypes.bfloat16)).all()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("page_size", [1, 7, 64])
def test_empty_cache(name, page_size):
    cache = flashmla.empty_cache(3, page_size, format=name)
    same = Pool(name, 3, page_size)
    assert cache.shape == same.array().shape and cache.strides == same.array().strides
    rows = np.ones((1, same.d_qk), np.float32)
    flashmla.append(*split(same, rows), cache, np.array([2 * page_size]))
    assert (flashmla.gather(cache, np.array([2 * page_size])) == 1).all()


def test_records_without_a_rotary_part():
    cache = flashmla.empty_cache(2, 4, d_qk=512)
    rows = np.random.default_rng(0).standard_normal((3, 512)).astype(ml_dtypes.bfloat16)
    flashmla.append(rows, None, cache, np.array([7, 0, 3]))
    assert (flashmla.gather(cache, np.array([7, 0, 3])) == rows).all()


def append_arguments():
    pool = Pool("fp8_656", 2, 4)
    latent, rope = split(pool, np.ones((3, 576), np.float32))
    return pool, dict(latent=latent, rope=rope, cache=pool.array(), slot_ids=np.arange(3))


BAD_APPEND = {
    "latent dtype": dict(latent=np.ones((3, 512))),
    "latent rank": dict(latent=np.ones((3, 1, 512), np.float32)),
    "cache and latent's width": dict(latent=np.ones((3, 500), np.float32)),
    "rope count": dict(rope=np.ones((2, 64), np.float32)),
    "rope dtype": dict(rope=np.ones((3, 64), np.float16)),
    "cache dtype": dict(cache=np.zeros((2, 4, 1, 656), np.int16)),
    "cache record": dict(cache=np.zeros((2, 4, 1, 655), np.uint8)),
    "cache rank": dict(cache=np.zeros((2, 4, 656), np.uint8)),
    "cache None": dict(cache=None),
    "slot_ids dtype": dict(slot_ids=np.zeros(3, np.int16)),
    "slot_ids rank": dict(slot_ids=np.zeros((3, 1), np.int32)),
    "slot_ids outside": dict(slot_ids=np.array([0, 8, 1])),
    "positions alone": dict(positions=np.zeros(3, np.int32)),
    "positions outside": dict(positions=np.full(3, 9), cos_sin=np.ones((9, 64), np.float32)),
    "cos_sin width": dict(positions=np.zeros(3, np.int32), cos_sin=np.ones((9, 32), np.float32)),
    "rotary_style": dict(rotary_style="neox"),
    "cache_scale": dict(cache_scale="big"),
}


@pytest.mark.parametrize("name", BAD_APPEND)
def test_bad_append(name):
    pool, arguments = append_arguments()
    with pytest.raises(ValueError) as caught:
        flashmla.append(**{**arguments, **BAD_APPEND[name]})
    message = str(caught.value)
    assert name.split()[0] in message and "got" in message and "wanted" in message, message
    assert (pool.guarded == 0xFF).all()


def test_caches_that_cannot_be_written():
    pool, arguments = append_arguments()
    arguments["cache"].setflags(write=False)
    with pytest.raises(ValueError, match="cache: got a read-only array"):
        flashmla.append(**arguments)


CACHE = np.zeros((2, 4, 1, 656), np.uint8)
BAD_CALLS = {
    "slot_ids, cu_seqlens": lambda: flashmla.gather(CACHE),
    "slot_ids": lambda: flashmla.gather(CACHE, np.array([8])),
    "cu_seqlens": lambda: flashmla.gather(CACHE, block_table=np.zeros((1, 1), np.int32), cu_seqlens=np.array([0, 9], np.int32)),
    "block_table": lambda: flashmla.gather(CACHE, block_table=np.full((1, 1), 5, np.int32), cu_seqlens=np.int32([0, 2])),
    "dtype": lambda: flashmla.gather(CACHE, np.array([0]), dtype="float64"),
    "out": lambda: flashmla.gather(CACHE, np.array([0]), out=np.zeros((1, 575), np.float32)),
    "cache": lambda: flashmla.gather(np.zeros((2, 4, 1, 576)), np.array([0])),
    "d_qk": lambda: flashmla.gather(CACHE, np.array([0]), d_qk=1.5),
    "page_pairs": lambda: flashmla.copy_pages(CACHE, CACHE.copy(), np.array([[0, 2]])),
    "destination": lambda: flashmla.copy_pages(CACHE, np.zeros((2, 5, 1, 656), np.uint8), np.array([[0, 1]])),
    "page_pairs read and written": lambda: flashmla.copy_pages(CACHE, CACHE, np.array([[0, 1], [1, 0]])),
    "destination, format": lambda: flashmla.convert(CACHE),
    "format": lambda: flashmla.convert(CACHE, format="fp4"),
    "source": lambda: flashmla.convert(CACHE[0], format="bf16"),
    "d_qk 512": lambda: flashmla.convert(CACHE, format="fp8_584"),
    "destination pages": lambda: flashmla.convert(CACHE, np.zeros((3, 4, 1, 576), np.float16)),
    "num_pages": lambda: flashmla.empty_cache(-1),
    "page_size": lambda: flashmla.empty_cache(1, 0),
    "d_qk of a packed record": lambda: flashmla.empty_cache(1, format="fp8_656", d_qk=512),
    "like": lambda: flashmla.empty_cache(1, like=[1, 2]),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls(name):
    with pytest.raises(ValueError) as caught:
        BAD_CALLS[name]()
    message = str(caught.value)
    assert name.split()[0].rstrip(",") in message and "got" in message and "wanted" in message, message
