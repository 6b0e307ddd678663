"""flashmla.decode on NumPy arrays against the float64 oracle."""

import ml_dtypes
import mla_oracle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mla_cases import cpu_rounding, make_case

import flashmla


def run_and_check(case, **extra):
    out, lse = flashmla.decode(*case.inputs, **case.options, **extra)
    assert out.dtype == case.q.dtype and lse.dtype == np.float32
    expected = mla_oracle.decode(*case.inputs, **case.options, rounding=cpu_rounding(case.q.dtype.name))
    mla_oracle.check(out, lse, expected)
    return out, lse


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("logit_std", [0.01, 1, 8, 50])
def test_ragged_batch(dtype, logit_std):
    run_and_check(make_case([1, 0, 63, 64, 65, 200, 2500], dtype=dtype, logit_std=logit_std))


@pytest.mark.parametrize("h_q, h_kv", [(1, 1), (3, 1), (8, 8), (12, 3), (63, 1), (128, 1), (126, 2)])
def test_head_counts(h_q, h_kv):
    run_and_check(make_case([70, 5], h_q=h_q, h_kv=h_kv))


@pytest.mark.parametrize("page_size", [1, 2, 16, 61, 64, 69, 128, 576])
def test_page_sizes(page_size):
    run_and_check(make_case([130, 3, 61], page_size=page_size))


@pytest.mark.parametrize("s_q", [1, 2, 3, 5, 64, 127])
@pytest.mark.parametrize("causal", [False, True])
def test_query_tokens(s_q, causal):
    run_and_check(make_case([100, 2, 0, 64], s_q=s_q, h_q=4, causal=causal))


@pytest.mark.parametrize("scale", [1.0, -0.05, 0.0, 192**-0.5])
def test_any_scale_is_honoured(scale):
    case = make_case([90, 7])
    case.options["softmax_scale"] = scale
    run_and_check(case)


@given(
    lengths=st.lists(st.integers(0, 200), min_size=1, max_size=5),
    s_q=st.integers(1, 4),
    heads=st.sampled_from([(1, 1), (5, 1), (16, 1), (6, 2)]),
    page_size=st.sampled_from([1, 7, 64]),
    causal=st.booleans(),
    dtype=st.sampled_from(["bfloat16", "float16"]),
    poison=st.sampled_from([np.nan, np.inf, -np.inf]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_random_cases(lengths, s_q, heads, page_size, causal, dtype, poison, seed):
    run_and_check(
        make_case(
            lengths,
            seed=seed,
            s_q=s_q,
            h_q=heads[0],
            h_kv=heads[1],
            page_size=page_size,
            causal=causal,
            dtype=dtype,
            poison=poison,
        )
    )


def test_cumulative_lengths_equal_lengths():
    case = make_case([70, 0, 5, 129])
    cumulative = np.concatenate([[0], np.cumsum(case.cache_seqlens)]).astype(np.int32)
    out, lse = flashmla.decode(case.q, case.k_cache, case.block_table, cu_seqlens_k=cumulative)
    again, lse_again = flashmla.decode(*case.inputs)
    assert out.tobytes() == again.tobytes() and lse.tobytes() == lse_again.tobytes()


def test_no_requests():
    out, lse = flashmla.decode(
        np.zeros((0, 1, 16, 576), np.float16),
        np.zeros((0, 64, 1, 576), np.float16),
        np.zeros((0, 1), np.int32),
        np.zeros(0, np.int32),
    )
    assert out.shape == (0, 1, 16, 512) and out.dtype == np.float16
    assert lse.shape == (0, 16, 1) and lse.dtype == np.float32


def test_empty_pool():
    case = make_case([0] * 16)
    out, lse = flashmla.decode(case.q, case.k_cache[:0], case.block_table, case.cache_seqlens)
    assert (np.asarray(out, np.float32) == 0).all() and np.isposinf(lse).all()


def test_more_tokens_than_keys():
    """The first three query tokens see nothing; the last sees the one key and returns its value and score."""
    case = make_case([1], s_q=4, causal=True)
    out, lse = run_and_check(case)
    key = case.k_cache[case.block_table[0, 0], 0, 0]
    assert (np.asarray(out[0, :3], np.float32) == 0).all() and np.isposinf(lse[0, :, :3]).all()
    assert (out[0, 3].view(np.uint16) == key[:512].view(np.uint16)).all()


def test_caller_owned_outputs_are_written_whole():
    case = make_case([100] + [0] * 31, h_q=8)
    out = np.full((32, 1, 8, 512), np.nan, ml_dtypes.bfloat16)
    lse = np.full((32, 8, 1), np.nan, np.float32)
    returned = flashmla.decode(*case.inputs, out=out, lse=lse)
    assert returned[0] is out and returned[1] is lse
    mla_oracle.check(out, lse, mla_oracle.decode(*case.inputs, rounding=cpu_rounding("bfloat16")))


def test_caller_owned_workspace():
    case = make_case([5000, 3], h_q=128)
    size = flashmla.plan(2, h_q=128, max_pages=case.block_table.shape[1]).workspace_bytes
    memory = np.zeros(size + 256, np.uint8)
    start = -memory.ctypes.data % 256
    out, lse = flashmla.decode(*case.inputs, workspace=memory[start : start + size])
    assert out.tobytes() == flashmla.decode(*case.inputs)[0].tobytes()
    if size:
        with pytest.raises(ValueError, match="workspace"):
            flashmla.decode(*case.inputs, workspace=memory[start : start + size - 1])


def test_strided_views():
    """q with heads outside tokens and wide rows, one layer of a packed pool, a sliced table, lse transposed."""
    case = make_case([70, 200, 64], s_q=2, h_q=16)
    wide = np.full((3, 16, 2, 600), np.nan, ml_dtypes.bfloat16)
    wide[..., :576] = case.q.transpose(0, 2, 1, 3)
    pool = np.full((case.k_cache.shape[0], 8, 64, 1, 576), np.nan, ml_dtypes.bfloat16)
    pool[:, 3] = case.k_cache
    table = np.full((6, case.block_table.shape[1] + 5), -1, np.int32)
    table[::2, : case.block_table.shape[1]] = case.block_table
    lse = np.zeros((3, 2, 16), np.float32).transpose(0, 2, 1)
    out, lse = flashmla.decode(
        wide[..., :576].transpose(0, 2, 1, 3), pool[:, 3], table[::2, : case.block_table.shape[1]], case.cache_seqlens, lse=lse
    )
    packed_out, packed_lse = flashmla.decode(*case.inputs)
    assert out.tobytes() == packed_out.tobytes() and (lse == packed_lse).all()


@pytest.mark.parametrize("length", [1, 13, 63, 65])
def test_bytes_without_a_token_do_not_matter(length):
    """Field cases 11 and 13: the tail of the last page, unused pages and table entries past the length."""
    results = [
        flashmla.decode(*make_case([length], poison=poison).inputs)[0].tobytes() for poison in (0.0, np.nan, np.inf, -np.inf)
    ]
    assert len(set(results)) == 1


@pytest.mark.parametrize("pages", ["reversed", "shared"])
def test_scattered_pages(pages):
    case = make_case([256, 256], spare_columns=0)
    order = np.arange(case.k_cache.shape[0])[::-1].copy()
    if pages == "reversed":
        moved = case.k_cache[order]
        inverse = np.argsort(order).astype(np.int32)
        again = flashmla.decode(case.q, moved, inverse[case.block_table], case.cache_seqlens)
        first = flashmla.decode(*case.inputs)
    else:  # the second request shares the first one's prefix
        table = case.block_table.copy()
        table[1, :3] = table[0, :3]
        shared = flashmla.decode(case.q, case.k_cache, table, case.cache_seqlens)
        copied = case.k_cache.copy()
        copied[case.block_table[1, :3]] = copied[case.block_table[0, :3]]
        first, again = shared, flashmla.decode(case.q, copied, case.block_table, case.cache_seqlens)
    assert first[0].tobytes() == again[0].tobytes()


@pytest.mark.parametrize("batch_invariant", [False, True])
def test_bits_depend_on_neither_threads_nor_neighbours(batch_invariant):
    """On a CPU this holds in both modes."""
    case = make_case([3000, 17, 800, 0], h_q=32)
    whole = flashmla.decode(*case.inputs, batch_invariant=batch_invariant)[0]
    for workers in (1, 2, 3, 7):
        assert flashmla.decode(*case.inputs, num_workers=workers)[0].tobytes() == whole.tobytes()
    alone = flashmla.decode(
        case.q[2:3], case.k_cache, case.block_table[2:3], case.cache_seqlens[2:3], batch_invariant=batch_invariant
    )[0]
    assert alone.tobytes() == whole[2:3].tobytes()


def test_requests_do_not_touch_each_other():
    """A NaN among one request's keys stays in that request."""
    case = make_case([80, 80, 80])
    clean = flashmla.decode(*case.inputs)[0]
    case.k_cache[case.block_table[1, 0], 5] = np.nan
    out, lse = flashmla.decode(*case.inputs)
    assert np.isnan(out[1].astype(np.float32)).all()
    assert out[0].tobytes() == clean[0].tobytes() and out[2].tobytes() == clean[2].tobytes()


@pytest.mark.parametrize("length", [131071, 131072, 131073, 262144, 1048576])
def test_long_context(length):
    """No hidden cap: every page but the last is the same one, so the answer has a closed form."""
    q = np.zeros((1, 1, 2, 576), np.float32)
    q[..., 0] = 24.0  # the default scale makes that a factor 1
    pool = np.zeros((2, 64, 1, 576), np.float32)
    pool[1, :, 0, 0] = 12.0  # the last page's logits, against 0 elsewhere
    pool[1, :, 0, 1] = 1.0
    table = np.zeros((1, length // 64 + 1), np.int32)
    table[0, (length - 1) // 64] = 1
    out, lse = flashmla.decode(
        q.astype(ml_dtypes.bfloat16), pool.astype(ml_dtypes.bfloat16), table, np.array([length], np.int32)
    )
    last = (length - 1) % 64 + 1
    total = (length - last) + last * np.exp(12.0)
    assert np.allclose(lse, np.log(total), rtol=1e-6)
    assert np.allclose(out[0, 0, :, 1].astype(np.float64), last * np.exp(12.0) / total, rtol=2**-8)


def test_large_page_ids_times_stride():
    """Page id times page stride passes 2^31 elements; only the pages in use are ever touched."""
    pages = 2**31 // (64 * 576) + 8
    pool = np.zeros((pages, 64, 1, 576), np.float16)
    case = make_case([100, 64], dtype="float16")
    table = case.block_table.copy()
    for request, used in ((0, 2), (1, 1)):
        for index in range(used):
            page = pages - 1 - 3 * request - index
            pool[page] = case.k_cache[case.block_table[request, index]]
            table[request, index] = page
    out, lse = flashmla.decode(case.q, pool, table, case.cache_seqlens)
    assert out.tobytes() == flashmla.decode(*case.inputs)[0].tobytes()
