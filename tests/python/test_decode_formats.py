"""Dense and sparse decode from every cache format against float64 NumPy: any shape and option, poison wherever reading is illegal."""

import ml_dtypes
import numpy as np
import pytest
from attention_oracle import check_rows, sparse_decode
from cache_oracle import E4M3, FORMATS, Pool
from hypothesis import given, settings
from hypothesis import strategies as st
from mla_cases import cpu_rounding

import flashmla

Q_DTYPES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}
WILD_IDS = np.array([-1, -(2**31), 2**31 - 1, 1 << 30], np.int32)


def make_pool(random, name, pages, page_size, padding, cache_scale=1.0):
    """Every token written; page padding and gaps hold 0xFF, which is NaN in every format."""
    pool = Pool(name, pages, page_size, padding=padding)
    rows = random.standard_normal((pool.num_slots, pool.d_qk)).astype(np.float32)
    pool.write(np.arange(pool.num_slots), rows, cache_scale=cache_scale)
    return pool


def poison_all_but(pool, live):
    """0xFF in every token that no one may read, and in the bytes between pages."""
    kept = Pool(pool.format, pool.num_pages, pool.page_size, d_qk=pool.d_qk, padding=pool.padding)
    live = np.unique(np.asarray(live, np.int64))
    if len(live):
        for part in pool._parts():
            if part is not None:
                where = pool._bytes(live, *part)
                kept.raw[where] = pool.raw[where]
    return kept


def queries(random, name, q_dtype, shape, logit_std):
    """(q for the library, its exact values, descale_q)."""
    q = random.standard_normal(shape) * logit_std
    if q_dtype is E4M3:
        q = np.clip(q * 8, -448, 448).astype(E4M3)
        return q, q.astype(np.float64) * 0.125, np.float32([0.125])
    return q.astype(q_dtype), q.astype(q_dtype), None


def q_dtype_for(name, fp8_queries):
    if name == "fp8_flat" and fp8_queries:
        return E4M3
    return Q_DTYPES.get(name, ml_dtypes.bfloat16)


def check(result, expected, q):
    out, lse = result
    assert out.dtype == (ml_dtypes.bfloat16 if q.dtype == E4M3 else q.dtype) and lse.dtype == np.float32
    check_rows(out, lse, expected, lse_first_heads=True)


@given(
    name=st.sampled_from(FORMATS),
    lengths=st.lists(st.integers(0, 150), min_size=1, max_size=4),
    s_q=st.integers(1, 3),
    h_q=st.sampled_from([1, 3, 16, 65]),
    page_size=st.sampled_from([1, 7, 64]),
    padding=st.sampled_from([0, 1152]),
    causal=st.booleans(),
    logit_std=st.sampled_from([0.01, 1, 8]),
    fp8_queries=st.booleans(),
    byte_dtype=st.sampled_from([np.uint8, np.int8, E4M3]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=50, deadline=None)
def test_dense(name, lengths, s_q, h_q, page_size, padding, causal, logit_std, fp8_queries, byte_dtype, seed):
    random = np.random.default_rng(seed)
    b = len(lengths)
    pages_of = [-(-n // page_size) for n in lengths]
    cache_scale = 0.5 if name == "fp8_flat" else 1.0
    pool = make_pool(random, name, sum(pages_of) + 2, page_size, padding, cache_scale)
    table = random.choice(WILD_IDS, (b, max(pages_of) + 1))
    free = list(random.permutation(pool.num_pages))
    indices = np.full((b, s_q, max(max(lengths), 1)), -1, np.int32)  # dense attention as the oracle's sparse one
    for i, n in enumerate(lengths):
        for page in range(pages_of[i]):
            table[i, page] = free.pop()
        slots = table[i, np.arange(n) // page_size] * page_size + np.arange(n) % page_size
        for token in range(s_q):
            seen = max(0, n - s_q + token + 1) if causal else n
            indices[i, token, :seen] = slots[:seen]
    pool = poison_all_but(pool, indices[indices >= 0])
    q, exact_q, descale_q = queries(random, name, q_dtype_for(name, fp8_queries), (b, s_q, h_q, pool.d_qk), logit_std)
    descale_k = np.full(b, cache_scale, np.float32) if name == "fp8_flat" else None
    result = flashmla.decode(
        q, pool.array(byte_dtype), table, np.int32(lengths), causal=causal, descale_q=descale_q, descale_k=descale_k
    )
    dtype = "bfloat16" if q.dtype == E4M3 else q.dtype.name
    tokens = np.nan_to_num(pool.read(np.arange(pool.num_slots), cache_scale=cache_scale))
    check(result, sparse_decode(exact_q, tokens, indices, dtype=dtype, rounding=cpu_rounding(dtype, name)), q)


def draw_indices(random, shape, num_tokens, wild):
    """Indices with holes, repeats, and ids that are no token."""
    ids = random.integers(0, max(num_tokens, 1), shape).astype(np.int32)
    ids[random.random(shape) < wild] = -1
    nowhere = random.random(shape) < wild / 2
    ids[nowhere] = random.choice(WILD_IDS, nowhere.sum())
    if num_tokens == 0:
        ids[...] = -1
    return ids


def draw_lengths(random, kind, b, s_q, topk):
    """topk_length: none, one a request, one a query token; 0 and topk among them."""
    shape = {"none": None, "request": (b,), "token": (b, s_q)}[kind]
    return None if shape is None else random.choice([0, 1, topk // 2, topk], shape).astype(np.int32)


def live_tokens(indices, lengths, num_tokens):
    b, s_q, topk = indices.shape
    seen = (indices >= 0) & (indices < num_tokens)
    if lengths is not None:
        seen &= np.arange(topk) < np.broadcast_to(lengths.reshape(b, -1), (b, s_q))[:, :, None]
    return indices[seen]


@given(
    name=st.sampled_from(FORMATS),
    b=st.integers(1, 3),
    s_q=st.integers(1, 3),
    h_q=st.sampled_from([1, 8, 63, 128]),
    topk=st.sampled_from([1, 5, 64, 130]),
    page_size=st.sampled_from([1, 7, 64]),
    padding=st.sampled_from([0, 1152]),
    length_kind=st.sampled_from(["none", "request", "token"]),
    extra=st.sampled_from([None, (1, 16), (40, 2)]),
    sink=st.sampled_from([None, 0.0, 5.0, -np.inf, np.inf, "mixed"]),
    wild=st.sampled_from([0.0, 0.3, 1.0]),
    logit_std=st.sampled_from([0.01, 1, 8]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_sparse(name, b, s_q, h_q, topk, page_size, padding, length_kind, extra, sink, wild, logit_std, seed):
    random = np.random.default_rng(seed)
    pool = make_pool(random, name, 9, page_size, padding)
    indices = draw_indices(random, (b, s_q, topk), pool.num_slots, wild)
    topk_length = draw_lengths(random, length_kind, b, s_q, topk)
    pool = poison_all_but(pool, live_tokens(indices, topk_length, pool.num_slots))
    options, second = dict(indices=indices, topk_length=topk_length), None
    if extra is not None:
        extra_topk, extra_page_size = extra
        other = make_pool(random, name, 5, extra_page_size, padding)
        extra_indices = draw_indices(random, (b, s_q, extra_topk), other.num_slots, wild)
        extra_length = draw_lengths(random, length_kind, b, s_q, extra_topk)
        other = poison_all_but(other, live_tokens(extra_indices, extra_length, other.num_slots))
        options |= dict(extra_k_cache=other.array(), extra_indices=extra_indices, extra_topk_length=extra_length)
        second = np.nan_to_num(other.read(np.arange(other.num_slots))), extra_indices, extra_length
    if sink is not None:
        options["attn_sink"] = np.full(h_q, 0 if sink == "mixed" else sink, np.float32)
        if sink == "mixed":
            options["attn_sink"] = random.choice(np.float32([0, 3, -20, 90, -np.inf, np.inf]), h_q)
    q, exact_q, _ = queries(random, name, q_dtype_for(name, False), (b, s_q, h_q, pool.d_qk), logit_std)
    expected = sparse_decode(
        exact_q,
        np.nan_to_num(pool.read(np.arange(pool.num_slots))),
        indices,
        topk_length=topk_length,
        extra=second,
        attn_sink=options.get("attn_sink"),
        rounding=cpu_rounding(q.dtype.name, name),
    )
    check(flashmla.decode(q, pool.array(), **options), expected, q)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_long_tail_of_small_weights_counts(name, sparse):
    """Field case 63: one logit 0 and 2,047 of -7, every value 1. Rounded to 8 bits the tail would be lost."""
    pool = Pool(name, 32, 64)
    rows = np.ones((2048, pool.d_qk), np.float32)
    rows[:, -1] = -7
    rows[0, -1] = 0
    slots = np.random.default_rng(0).permutation(2048)
    pool.write(slots, rows)
    q = np.zeros((1, 1, 4, pool.d_qk), Q_DTYPES.get(name, ml_dtypes.bfloat16))
    q[..., -1] = 1
    if sparse:
        where = dict(indices=slots.reshape(1, 1, -1).astype(np.int32))
    else:
        where = dict(block_table=np.arange(32, dtype=np.int32)[None], cache_seqlens=np.int32([2048]))
    out, lse = flashmla.decode(q, pool.array(), softmax_scale=1.0, **where)
    assert np.abs(out[..., :448].astype(np.float64) - 1).max() < 1e-2  # of 584-byte records the rotary part is value too
    assert np.abs(lse - np.log(1 + 2047 * np.exp(-7))).max() < 1e-5


@pytest.mark.parametrize("name", FORMATS)
def test_outputs_stay_within_their_rows(name):
    """Caller's outputs inside larger arrays: all of theirs is written, nothing beside it."""
    random = np.random.default_rng(0)
    pool = make_pool(random, name, 4, 16, 0)
    q, exact_q, _ = queries(random, name, q_dtype_for(name, False), (2, 2, 8, pool.d_qk), 1)
    indices = draw_indices(random, (2, 2, 40), pool.num_slots, 0.3)
    memory = np.full((4, 2, 8, 640), np.nan).astype(q.dtype)
    lse_memory = np.full((4, 8, 4), 7.0, np.float32)
    result = flashmla.decode(q, pool.array(), indices=indices, out=memory[1:3, :, :, :512], lse=lse_memory[1:3, :, :2])
    tokens = pool.read(np.arange(pool.num_slots))
    check(result, sparse_decode(exact_q, tokens, indices, rounding=cpu_rounding(q.dtype.name, name)), q)
    assert np.isnan(memory[[0, 3]].astype(np.float32)).all() and np.isnan(memory[..., 512:].astype(np.float32)).all()
    assert (lse_memory[[0, 3]] == 7).all() and (lse_memory[:, :, 2:] == 7).all()


@pytest.mark.parametrize("name", FORMATS)
def test_bits_depend_on_neither_threads_nor_neighbours(name):
    random = np.random.default_rng(1)
    pool = make_pool(random, name, 40, 64, 0)
    q, _, _ = queries(random, name, q_dtype_for(name, False), (3, 1, 32, pool.d_qk), 1)
    indices = draw_indices(random, (3, 1, 2048), pool.num_slots, 0.1)
    whole = flashmla.decode(q, pool.array(), indices=indices)[0]
    for workers in (1, 2, 5):
        assert flashmla.decode(q, pool.array(), indices=indices, num_workers=workers)[0].tobytes() == whole.tobytes()
    alone = flashmla.decode(q[1:2], pool.array(), indices=indices[1:2])[0]
    assert alone.tobytes() == whole[1:2].tobytes()


def sparse_arguments():
    pool = make_pool(np.random.default_rng(0), "fp8_656", 2, 16, 0)
    indices = np.zeros((2, 1, 8), np.int32)
    return dict(q=np.zeros((2, 1, 4, 576), ml_dtypes.bfloat16), k_cache=pool.array(), indices=indices)


EXTRA = dict(extra_k_cache=np.zeros((1, 4, 1, 656), np.uint8), extra_indices=np.zeros((2, 1, 3), np.int32))
FLAT = dict(k_cache=np.zeros((2, 16, 1, 576), E4M3))
BAD_SPARSE = {
    "indices dtype": dict(indices=np.zeros((2, 1, 8), np.int64)),
    "indices rank": dict(indices=np.zeros((2, 8), np.int32)),
    "indices batch": dict(indices=np.zeros((1, 1, 8), np.int32)),
    "indices topk 0": dict(indices=np.zeros((2, 1, 0), np.int32)),
    "topk_length dtype": dict(topk_length=np.zeros(2, np.int64)),
    "topk_length shape": dict(topk_length=np.zeros(3, np.int32)),
    "extra_indices alone": dict(extra_indices=EXTRA["extra_indices"]),
    "extra_indices missing": dict(extra_k_cache=EXTRA["extra_k_cache"]),
    "extra_indices dtype": dict(EXTRA, extra_indices=np.zeros((2, 1, 3), np.float32)),
    "extra_k_cache record": dict(EXTRA, extra_k_cache=np.zeros((1, 4, 1, 584), np.uint8)),
    "extra_k_cache dtype": dict(EXTRA, extra_k_cache=np.zeros((1, 4, 1, 656), np.float32)),
    "extra_topk_length alone": dict(extra_topk_length=np.zeros(2, np.int32)),
    "attn_sink dtype": dict(attn_sink=np.zeros(4, np.float64)),
    "attn_sink shape": dict(attn_sink=np.zeros(5, np.float32)),
    "causal": dict(causal=True),
    "block_table": dict(block_table=np.zeros((2, 1), np.int32), cache_seqlens=np.zeros(2, np.int32)),
    "descale_q of another format": dict(descale_q=np.ones(1, np.float32)),
    "descale_k dtype": dict(FLAT, descale_k=np.ones(1, np.float64)),
    "descale_k shape": dict(FLAT, descale_k=np.ones(3, np.float32)),
    "k_cache record": dict(k_cache=np.zeros((2, 16, 1, 600), np.uint8)),
    "k_cache dtype": dict(k_cache=np.zeros((2, 16, 1, 656), np.uint16)),
    "out width": dict(out=np.zeros((2, 1, 4, 448), ml_dtypes.bfloat16)),
}


@pytest.mark.parametrize("name", BAD_SPARSE)
def test_bad_arguments(name):
    arguments = sparse_arguments()
    lse = np.full((2, 4, 1), 7.0, np.float32)
    with pytest.raises(ValueError) as caught:
        flashmla.decode(**{**arguments, "lse": lse, **BAD_SPARSE[name]})
    message = str(caught.value)
    assert name.split()[0] in message and "got" in message and "wanted" in message, message
    assert (lse == 7).all()
