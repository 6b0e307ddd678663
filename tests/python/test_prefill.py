"""Sparse prefill, dense prefill and its backward against float64 NumPy."""

import ml_dtypes
import numpy as np
import pytest
from attention_oracle import check_rows, check_within, dense_prefill, dense_prefill_backward, sparse_prefill
from hypothesis import given, settings
from hypothesis import strategies as st
from mla_cases import cpu_rounding

import flashmla

DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
WILD_IDS = np.array([-1, -(2**31), 2**31 - 1, 1 << 30], np.int32)


@given(
    s_q=st.integers(1, 6),
    s_kv=st.sampled_from([1, 40, 300]),
    heads=st.sampled_from([1, 8, 65, 128]),
    dims=st.sampled_from([(576, 512), (512, 512)]),
    topk=st.sampled_from([1, 7, 128]),
    with_length=st.booleans(),
    sink=st.sampled_from([None, 0.0, "mixed"]),
    wild=st.sampled_from([0.0, 0.3, 1.0]),
    dtype=st.sampled_from(sorted(DTYPES)),
    logit_std=st.sampled_from([0.01, 1, 8]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=50, deadline=None)
def test_sparse(s_q, s_kv, heads, dims, topk, with_length, sink, wild, dtype, logit_std, seed):
    """Rows that no index names are NaN."""
    random = np.random.default_rng(seed)
    d_qk, d_v = dims
    q = (random.standard_normal((s_q, heads, d_qk)) * logit_std).astype(DTYPES[dtype])
    kv = random.standard_normal((s_kv, 1, d_qk)).astype(DTYPES[dtype])
    indices = random.integers(0, s_kv, (s_q, 1, topk)).astype(np.int32)
    nowhere = random.random(indices.shape) < wild
    indices[nowhere] = random.choice(WILD_IDS, nowhere.sum())
    topk_length = random.choice([0, 1, topk], s_q).astype(np.int32) if with_length else None
    seen = (indices[:, 0] >= 0) & (indices[:, 0] < s_kv)
    if with_length:
        seen &= np.arange(topk) < topk_length[:, None]
    exact_kv = kv.copy()
    unseen = np.setdiff1d(np.arange(s_kv), indices[:, 0][seen])
    kv[unseen] = np.nan
    exact_kv[unseen] = 0
    attn_sink = None
    if sink is not None:
        attn_sink = random.choice(np.float32([0, 3, -20, 90, -np.inf, np.inf] if sink == "mixed" else [sink]), heads)
    out, max_logits, lse = flashmla.sparse_prefill(
        q, kv, indices, d_v=d_v, topk_length=topk_length, attn_sink=attn_sink
    )
    assert out.dtype == q.dtype and max_logits.dtype == lse.dtype == np.float32
    expected = sparse_prefill(
        q, exact_kv, indices, d_v=d_v, topk_length=topk_length, attn_sink=attn_sink, rounding=cpu_rounding(dtype)
    )
    check_rows(out, lse, expected)
    empty = np.isneginf(expected.max_logits)
    assert (np.isneginf(max_logits) == empty).all()
    # A score is one term of its row's LSE: no further off than that.
    error = np.abs(np.where(empty, 0, max_logits) - np.where(empty, 0, expected.max_logits))
    assert (error <= expected.lse_bound).all(), error.max()


def ragged(random, lengths_q, lengths_kv, heads, dims, dtype, logit_std=1.0):
    """q, k, v and cumulative lengths of a batch."""
    h_q, h_kv = heads
    d_qk, d_v = dims
    kind = DTYPES[dtype]
    q = (random.standard_normal((sum(lengths_q), h_q, d_qk)) * logit_std).astype(kind)
    k = random.standard_normal((sum(lengths_kv), h_kv, d_qk)).astype(kind)
    v = random.standard_normal((sum(lengths_kv), h_kv, d_v)).astype(kind)
    cumulative = [np.concatenate([[0], np.cumsum(x)]).astype(np.int32) for x in (lengths_q, lengths_kv)]
    return q, k, v, *cumulative


BATCHES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 90)), min_size=1, max_size=4)
HEADS = st.sampled_from([(1, 1), (3, 1), (4, 2), (4, 4)])
DIMS = st.sampled_from([(192, 128), (128, 128)])


@given(
    batch=BATCHES,
    heads=HEADS,
    dims=DIMS,
    dtype=st.sampled_from(sorted(DTYPES)),
    causal=st.booleans(),
    scale=st.sampled_from([None, 0.02, -0.1]),
    logit_std=st.sampled_from([0.01, 1, 8]),
    bounds_given=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=50, deadline=None)
def test_dense(batch, heads, dims, dtype, causal, scale, logit_std, bounds_given, seed):
    random = np.random.default_rng(seed)
    lengths_q, lengths_kv = zip(*batch, strict=True)
    inputs = ragged(random, lengths_q, lengths_kv, heads, dims, dtype, logit_std)
    options = dict(max_seqlen_q=max(lengths_q), max_seqlen_kv=max(lengths_kv)) if bounds_given else {}
    out, lse = flashmla.dense_prefill(*inputs, causal=causal, softmax_scale=scale, **options)
    assert out.dtype == inputs[0].dtype and lse.dtype == np.float32
    check_rows(out, lse, dense_prefill(*inputs, causal=causal, softmax_scale=scale, rounding=cpu_rounding(dtype)))


@given(
    batch=BATCHES,
    heads=HEADS,
    dims=DIMS,
    dtype=st.sampled_from(sorted(DTYPES)),
    causal=st.booleans(),
    with_dlse=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, deadline=None)
def test_backward(batch, heads, dims, dtype, causal, with_dlse, seed):
    random = np.random.default_rng(seed)
    inputs = ragged(random, *zip(*batch, strict=True), heads, dims, dtype)
    out, lse = flashmla.dense_prefill(*inputs, causal=causal)
    dout = random.standard_normal(out.shape).astype(out.dtype)
    dlse = random.standard_normal(lse.shape).astype(np.float32) if with_dlse else None
    got = flashmla.dense_prefill_backward(dout, *inputs[:3], out, lse, *inputs[3:], dlse=dlse, causal=causal)
    wanted, bounds = dense_prefill_backward(dout, *inputs, causal=causal, dlse=dlse)
    for name, gradient, exact, bound in zip(("dq", "dk", "dv"), got, wanted, bounds, strict=True):
        assert gradient.dtype == out.dtype and gradient.shape == exact.shape
        check_within(gradient, exact, bound, name)


def test_the_oracle_of_the_backward_against_finite_differences():
    random = np.random.default_rng(0)
    q, k, v, cu_q, cu_kv = ragged(random, (3, 2), (4, 1), (2, 1), (192, 128), "bfloat16")
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    dout = random.standard_normal((5, 2, 128))
    dlse = random.standard_normal((5, 2))

    def loss(q, k, v):
        total = 0.0
        for request in range(2):
            rows, keys = slice(cu_q[request], cu_q[request + 1]), slice(cu_kv[request], cu_kv[request + 1])
            for i, row in enumerate(range(rows.start, rows.stop)):
                seen = max(0, keys.stop - keys.start - (rows.stop - rows.start) + i + 1)
                if seen == 0:
                    continue
                for head in range(2):
                    logits = 192**-0.5 * k[keys, 0][:seen] @ q[row, head]
                    weights = np.exp(logits)
                    total += dout[row, head] @ (weights @ v[keys, 0][:seen]) / weights.sum()
                    total += dlse[row, head] * np.log(weights.sum())
        return total

    gradients, _ = dense_prefill_backward(dout, q, k, v, cu_q, cu_kv, causal=True, dlse=dlse, dtype="float32")
    for which, gradient in enumerate(gradients):
        for _ in range(5):
            direction = random.standard_normal(gradient.shape)
            step = 1e-5
            moved = [[x + sign * step * direction if i == which else x for i, x in enumerate((q, k, v))] for sign in (1, -1)]
            numeric = (loss(*moved[0]) - loss(*moved[1])) / (2 * step)
            assert np.isclose((gradient * direction).sum(), numeric, rtol=1e-5, atol=1e-6)


def test_outputs_stay_within_their_rows():
    random = np.random.default_rng(0)
    inputs = ragged(random, (5, 0, 30), (7, 3, 30), (4, 2), (192, 128), "float16")
    memory = np.full((37, 4, 160), np.nan, np.float16)
    lse_memory = np.full((37, 4), 7.0, np.float32)
    out, lse = flashmla.dense_prefill(*inputs, out=memory[1:36, :, :128], lse=lse_memory[1:36])
    check_rows(out, lse, dense_prefill(*inputs))
    assert np.isnan(memory[[0, 36]]).all() and np.isnan(memory[..., 128:]).all() and (lse_memory[[0, 36]] == 7).all()


def test_bits_depend_on_neither_threads_nor_neighbours():
    random = np.random.default_rng(0)
    q, k, v, cu_q, cu_kv = ragged(random, (70, 3, 130), (200, 3, 130), (4, 2), (192, 128), "bfloat16")
    whole = flashmla.dense_prefill(q, k, v, cu_q, cu_kv, causal=True)[0]
    for workers in (1, 2, 5):
        again = flashmla.dense_prefill(q, k, v, cu_q, cu_kv, causal=True, num_workers=workers)[0]
        assert again.tobytes() == whole.tobytes()
    rows, keys = slice(cu_q[2], cu_q[3]), slice(cu_kv[2], cu_kv[3])
    ends = np.array([0, 130], np.int32)
    alone = flashmla.dense_prefill(q[rows].copy(), k[keys].copy(), v[keys].copy(), ends, ends, causal=True)[0]
    assert alone.tobytes() == whole[rows].tobytes()


def dense_arguments():
    names = ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_kv")
    return dict(zip(names, ragged(np.random.default_rng(0), (3, 2), (3, 2), (4, 2), (192, 128), "bfloat16"), strict=True))


BAD_DENSE = {
    "q dtype": dict(q=np.zeros((5, 4, 192), np.float32)),
    "q rank": dict(q=np.zeros((5, 192), ml_dtypes.bfloat16)),
    "q None": dict(q=None),
    "k dtype": dict(k=np.zeros((5, 2, 192), np.float16)),
    "k width": dict(k=np.zeros((5, 2, 128), ml_dtypes.bfloat16)),
    "k heads": dict(k=np.zeros((5, 3, 192), ml_dtypes.bfloat16), v=np.zeros((5, 3, 128), ml_dtypes.bfloat16)),
    "v rows": dict(v=np.zeros((4, 2, 128), ml_dtypes.bfloat16)),
    "cu_seqlens_q dtype": dict(cu_seqlens_q=np.array([0, 3, 5])),
    "cu_seqlens_q end": dict(cu_seqlens_q=np.int32([0, 3, 6])),
    "cu_seqlens_kv order": dict(cu_seqlens_kv=np.int32([0, 6, 5])),
    "cu_seqlens_kv count": dict(cu_seqlens_kv=np.int32([0, 5])),
    "max_seqlen_q": dict(max_seqlen_q=1.5),
    "out shape": dict(out=np.zeros((5, 4, 64), ml_dtypes.bfloat16)),
    "lse dtype": dict(lse=np.zeros((5, 4))),
    "softmax_scale": dict(softmax_scale="big"),
    "num_workers": dict(num_workers=2**40),
    "kernel": dict(kernel="banana"),
}


@pytest.mark.parametrize("name", BAD_DENSE)
def test_bad_dense_arguments(name):
    with pytest.raises(ValueError) as caught:
        flashmla.dense_prefill(**{**dense_arguments(), **BAD_DENSE[name]})
    message = str(caught.value)
    assert name.split()[0] in message and "got" in message and "wanted" in message, message


BAD_SPARSE = {
    "q dtype": dict(q=np.zeros((3, 4, 576), np.float32)),
    "kv width": dict(kv=np.zeros((9, 1, 512), np.float16)),
    "kv heads": dict(kv=np.zeros((9, 2, 576), np.float16)),
    "indices dtype": dict(indices=np.zeros((3, 1, 5), np.int64)),
    "indices rank": dict(indices=np.zeros((3, 5), np.int32)),
    "topk_length shape": dict(topk_length=np.zeros(2, np.int32)),
    "attn_sink dtype": dict(attn_sink=np.zeros(4, np.float16)),
    "d_v": dict(d_v=1000),
    "max_logits shape": dict(max_logits=np.zeros((4, 3), np.float32)),
    "out width": dict(out=np.zeros((3, 4, 448), np.float16)),
}


@pytest.mark.parametrize("name", BAD_SPARSE)
def test_bad_sparse_arguments(name):
    good = dict(q=np.zeros((3, 4, 576), np.float16), kv=np.zeros((9, 1, 576), np.float16), indices=np.zeros((3, 1, 5), np.int32))
    with pytest.raises(ValueError) as caught:
        flashmla.sparse_prefill(**{**good, **BAD_SPARSE[name]})
    message = str(caught.value)
    assert name.split()[0] in message and "got" in message and "wanted" in message, message


@pytest.mark.parametrize("name", ["dout", "dlse", "lse", "dq"])
def test_bad_backward_arguments(name):
    arguments = dense_arguments()
    out, lse = np.zeros((5, 4, 128), ml_dtypes.bfloat16), np.zeros((5, 4), np.float32)
    arguments |= dict(dout=out, out=out, lse=lse)
    arguments[name] = np.zeros((4, 4), np.int32)
    with pytest.raises(ValueError, match=f"^{name}: got .*wanted"):
        flashmla.dense_prefill_backward(**arguments)
