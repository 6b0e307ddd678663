"""merge against float64 NumPy: any number of parts, dtypes, parts without keys, poison where nothing may be read."""

import ml_dtypes
import numpy as np
import pytest
from attention_oracle import check_rows
from attention_oracle import merge as expected_merge
from hypothesis import given, settings
from hypothesis import strategies as st

import flashmla

DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}


def make_parts(shape, count, dtype, seed, dead_share, spread):
    """Parts (outs, lses) laid out like decode's results (rank 4) or prefill's (rank 3); outs of dead rows are NaN."""
    random = np.random.default_rng(seed)
    outs, lses = [], []
    for _ in range(count):
        out = random.standard_normal(shape).astype(DTYPES[dtype])
        lse = (random.standard_normal(shape[:-1]) * spread).astype(np.float32)
        dead = random.random(shape[:-1]) < dead_share
        lse[dead] = random.choice([np.inf, -np.inf], dead.sum())
        out[dead] = np.nan
        outs.append(out)
        lses.append(lse)
    return outs, lses


def as_library(lse):
    """Rows (b, s_q, h_q) of decode have their LSE as (b, h_q, s_q)."""
    return lse.transpose(0, 2, 1) if lse.ndim == 3 else lse


@given(
    leading=st.sampled_from([(1,), (3,), (2, 1), (3, 2)]),
    heads=st.integers(1, 5),
    d_v=st.sampled_from([1, 3, 128, 512]),
    count=st.integers(1, 5),
    dtype=st.sampled_from(sorted(DTYPES)),
    out_dtype=st.sampled_from([None, *sorted(DTYPES)]),
    dead_share=st.sampled_from([0.0, 0.3, 1.0]),
    spread=st.sampled_from([0.01, 1.0, 50.0]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_random_parts(leading, heads, d_v, count, dtype, out_dtype, dead_share, spread, seed):
    outs, lses = make_parts((*leading, heads, d_v), count, dtype, seed, dead_share, spread)
    out, lse = flashmla.merge(outs, [as_library(x) for x in lses], dtype=out_dtype)
    assert out.dtype == DTYPES[out_dtype or dtype] and lse.dtype == np.float32
    check_rows(out, as_library(lse), expected_merge(outs, lses, out_dtype or dtype))


def test_closed_form():
    """Sums 2 and 8 with outputs 0 and 1 merge to 0.8."""
    outs = [np.zeros((1, 1, 4), np.float32), np.ones((1, 1, 4), np.float32)]
    lses = [np.log(np.float32([[2]])), np.log(np.float32([[8]]))]
    out, lse = flashmla.merge(outs, lses)
    assert np.allclose(out, 0.8, atol=1e-6) and np.allclose(lse, np.log(10), atol=1e-6)


def test_a_nan_lse_stays_in_its_row():
    outs, lses = make_parts((3, 2, 8), 2, "float32", 0, 0.0, 1.0)
    clean = flashmla.merge(outs, lses)[0]
    lses[1][1, 0] = np.nan
    out, lse = flashmla.merge(outs, lses)
    assert np.isnan(out[1, 0]).all() and np.isnan(lse[1, 0])
    others = np.ones((3, 2), bool)
    others[1, 0] = False
    assert (out[others] == clean[others]).all()


def test_parts_of_decode_merge_to_the_whole():
    """Requests cut in two at a page: each half decoded alone, then merged."""
    from mla_cases import make_case

    case = make_case([200, 130], h_q=8)
    whole, whole_lse = flashmla.decode(*case.inputs)
    first = np.minimum(case.cache_seqlens, 128).astype(np.int32)
    parts = [
        flashmla.decode(case.q, case.k_cache, case.block_table, first),
        flashmla.decode(case.q, case.k_cache, case.block_table[:, 2:], case.cache_seqlens - first),
    ]
    out, lse = flashmla.merge([p[0] for p in parts], [p[1] for p in parts], dtype="float32")
    assert np.allclose(out, whole.astype(np.float32), atol=2**-6) and np.allclose(lse, whole_lse, atol=1e-5)


def test_caller_owned_outputs_with_guard_zones():
    outs, lses = make_parts((4, 3, 64), 2, "bfloat16", 1, 0.3, 1.0)
    memory = np.full((6, 3, 80), np.nan, np.float32)
    lse_memory = np.full((6, 3), 7.0, np.float32)
    out, lse = flashmla.merge(outs, lses, out=memory[1:5, :, :64], lse=lse_memory[1:5])
    check_rows(out, lse, expected_merge(outs, lses, "float32"))
    assert np.isnan(memory[[0, 5]]).all() and np.isnan(memory[..., 64:]).all() and (lse_memory[[0, 5]] == 7).all()


BAD = {
    "outs": dict(outs=[]),
    "outs rank": dict(outs=[np.zeros((3, 8), np.float32)] * 2),
    "outs dtype": dict(outs=[np.zeros((3, 2, 8), np.float64)] * 2),
    "outs array": dict(outs=np.zeros((2, 3, 2, 8), np.float32)),
    "outs shapes": dict(outs=[np.zeros((3, 2, 8), np.float32), np.zeros((3, 2, 9), np.float32)]),
    "lses count": dict(lses=[np.zeros((3, 2), np.float32)]),
    "lses dtype": dict(lses=[np.zeros((3, 2), np.float16)] * 2),
    "lses shape": dict(lses=[np.zeros((2, 3), np.float32)] * 2),
    "out shape": dict(out=np.zeros((3, 2, 9), np.float32)),
    "out dtype": dict(out=np.zeros((3, 2, 8), np.int32)),
    "lse dtype": dict(lse=np.zeros((3, 2), np.float64)),
    "dtype": dict(dtype="float64"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    outs, lses = make_parts((3, 2, 8), 2, "float32", 0, 0.0, 1.0)
    with pytest.raises(ValueError) as caught:
        flashmla.merge(**{"outs": outs, "lses": lses, **BAD[name]})
    message = str(caught.value)
    assert name.split()[0] in message and "got" in message and "wanted" in message, message
