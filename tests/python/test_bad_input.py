"""Bad arguments: one ValueError that names the argument, what it got and what it takes; nothing is written."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mla_cases import make_case

import flashmla

SENTINEL = 0x7E5A


def good():
    case = make_case([70, 5])
    arguments = dict(q=case.q, k_cache=case.k_cache, block_table=case.block_table, cache_seqlens=case.cache_seqlens)
    arguments["out"] = np.full((2, 1, 16, 512), SENTINEL, np.uint16).view(ml_dtypes.bfloat16)
    arguments["lse"] = np.full((2, 16, 1), 7.0, np.float32)
    return arguments


def read_only(array):
    array = array.copy()
    array.setflags(write=False)
    return array


# name of the argument, what replaces it (from the good one), what the message says it got
BAD = {
    "q rank 3": ("q", lambda q: q[:, 0], "rank 3"),
    "q rank 5": ("q", lambda q: q[None], "rank 5"),
    "q float32": ("q", lambda q: q.astype(np.float32), "float32"),
    "q float64": ("q", lambda q: q.astype(np.float64), "float64"),
    "q float8": ("q", lambda q: q.astype(ml_dtypes.float8_e4m3fn), "float8_e4m3fn"),
    "q plain bits": ("q", lambda q: q.view(np.uint16), "uint16"),
    "q other dtype than the cache": ("q", lambda q: q.astype(np.float16), "float16"),
    "q None": ("q", lambda q: None, "NoneType"),
    "q list": ("q", lambda q: [1, 2], "list"),
    "q string": ("q", lambda q: "q", "str"),
    "q last axis strided": ("q", lambda q: np.repeat(q, 2, axis=3)[..., ::2], "stride"),
    "q negative head count": ("q", lambda q: q[:, :, :0], "h_q"),
    "q no tokens": ("q", lambda q: q[:, :0], "s_q"),
    "q width": ("q", lambda q: q[..., :512].copy(), "512"),
    "cache rank 3": ("k_cache", lambda k: k[:, :, 0], "rank 3"),
    "cache width": ("k_cache", lambda k: k[..., :512].copy(), "512"),
    "cache float32": ("k_cache", lambda k: k.astype(np.float32), "float32"),
    "cache page size 0": ("k_cache", lambda k: k[:, :0], "page_size"),
    "table rank 1": ("block_table", lambda t: t[0], "rank 1"),
    "table int64": ("block_table", lambda t: t.astype(np.int64), "int64"),
    "table float32": ("block_table", lambda t: t.astype(np.float32), "float32"),
    "table of one request": ("block_table", lambda t: t[:1], "(1, 4)"),
    "table points outside": ("block_table", lambda t: np.full_like(t, 1000), "1000"),
    "table negative": ("block_table", lambda t: np.full_like(t, -3), "-3"),
    "lengths int64": ("cache_seqlens", lambda n: n.astype(np.int64), "int64"),
    "lengths rank 2": ("cache_seqlens", lambda n: n[:, None], "rank 2"),
    "lengths too many": ("cache_seqlens", lambda n: np.repeat(n, 2), "(4,)"),
    "lengths negative": ("cache_seqlens", lambda n: -n, "-70"),
    "lengths past the table": ("cache_seqlens", lambda n: n + 100000, "100070"),
    "no lengths": ("cache_seqlens", lambda n: None, "neither"),
    "out dtype": ("out", lambda o: o.astype(np.float16), "float16"),
    "out shape": ("out", lambda o: o[:1], "(1, 1, 16, 512)"),
    "out width": ("out", lambda o: o[..., :320], "320"),
    "out read-only": ("out", read_only, "read-only"),
    "out overlapping itself": ("out", lambda o: np.broadcast_to(o[:1], o.shape), ""),
    "lse dtype": ("lse", lambda x: x.astype(np.float64), "float64"),
    "lse shape": ("lse", lambda x: x[:, :, 0], "rank 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_one_bad_argument(name):
    argument, spoil, got = BAD[name]
    arguments = good()
    out, lse = arguments["out"], arguments["lse"]
    arguments[argument] = spoil(arguments[argument])
    with pytest.raises(ValueError) as caught:
        flashmla.decode(**arguments)
    message = str(caught.value)
    assert argument in message and "got" in message and "wanted" in message and got in message, message
    assert (out.view(np.uint16) == SENTINEL).all() and (lse == 7.0).all()


@pytest.mark.parametrize(
    "option, value",
    [("softmax_scale", "big"), ("d_v", 1.5), ("d_v", None), ("num_workers", "two"), ("num_workers", -1), ("stream", "x")],
)
def test_bad_option(option, value):
    arguments = good()
    with pytest.raises(ValueError, match=option):
        flashmla.decode(**{**arguments, option: value})
    assert (arguments["lse"] == 7.0).all()


@pytest.mark.parametrize("d_v", [-1, 0, 577, 2**31, 2**62])
def test_bad_value_length(d_v):
    case = make_case([5])
    with pytest.raises(ValueError, match="d_v"):
        flashmla.decode(*case.inputs, d_v=d_v)


def test_both_kinds_of_lengths():
    with pytest.raises(ValueError, match="cu_seqlens_k"):
        flashmla.decode(**good(), cu_seqlens_k=np.array([0, 70, 75], np.int32))


@pytest.mark.parametrize("cumulative", [[0, 70], [0, 70, 60], [0, -5, 3], [0, 70, 2**31 - 1], [-(2**31), 2**31 - 1, 5]])
def test_bad_cumulative_lengths(cumulative):
    arguments = {**good(), "cache_seqlens": None}
    with pytest.raises(ValueError, match="cu_seqlens_k"):
        flashmla.decode(**arguments, cu_seqlens_k=np.array(cumulative, np.int32))
    assert (arguments["lse"] == 7.0).all()


def test_unknown_kernel_lists_the_known_ones():
    with pytest.raises(ValueError, match="cpu_decode_dense"):
        flashmla.decode(**good(), kernel="banana")


def test_kernel_of_another_device():
    with pytest.raises(NotImplementedError, match="sm90_decode_dense"):
        flashmla.decode(**good(), kernel="sm90_decode_dense")


SHAPES = st.lists(st.integers(0, 4), min_size=0, max_size=5).map(tuple)
NUMBERS = st.sampled_from([np.float16, np.float32, np.int32, np.int64, np.uint8, ml_dtypes.bfloat16])


@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_random_arguments_never_crash(data):
    """Each argument is good or an array of random shape and dtype: a ValueError that says "got", or a result."""
    arguments = good()
    for name in data.draw(st.sets(st.sampled_from(sorted(arguments)), min_size=1, max_size=3)):
        arguments[name] = np.zeros(data.draw(SHAPES), data.draw(NUMBERS))
    try:
        flashmla.decode(**arguments)
    except (ValueError, NotImplementedError) as error:
        assert "got" in str(error) or isinstance(error, NotImplementedError)
