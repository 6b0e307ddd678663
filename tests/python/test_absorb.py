"""absorb_query and project_output against float64 NumPy."""

import ml_dtypes
import numpy as np
import pytest
from attention_oracle import check_within, project
from hypothesis import given, settings
from hypothesis import strategies as st

import flashmla

DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}


@given(
    operation=st.sampled_from(["absorb_query", "project_output"]),
    leading=st.sampled_from([(), (1,), (5,), (2, 3)]),
    heads=st.integers(1, 4),
    head_dim=st.sampled_from([1, 7, 64, 128]),
    rank=st.sampled_from([1, 9, 256, 512]),
    dtype=st.sampled_from(sorted(DTYPES)),
    strided=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_random_shapes(operation, leading, heads, head_dim, rank, dtype, strided, seed):
    """x and out as columns of wider arrays, as in a query's latent part; nothing is written beside them."""
    random = np.random.default_rng(seed)
    kind = DTYPES[dtype]
    forward = operation == "absorb_query"
    width, out_width = (head_dim, rank) if forward else (rank, head_dim)
    beside = 8 if strided else 0
    x = random.standard_normal((*leading, heads, width + beside)).astype(kind)[..., :width]
    weight = (random.standard_normal((heads, head_dim, rank)) * width**-0.5).astype(kind)
    memory = np.full((*leading, heads, out_width + beside), np.nan).astype(kind)
    out = memory[..., :out_width]
    assert getattr(flashmla, operation)(x, weight, out=out) is out
    wanted, bound = project(x.reshape(-1, heads, width), weight if forward else weight.transpose(0, 2, 1), dtype)
    check_within(out.reshape(wanted.shape), wanted, bound, "out")
    assert np.isnan(memory[..., out_width:].astype(np.float32)).all()


def test_fresh_output():
    x, weight = np.ones((2, 3, 4, 128), ml_dtypes.bfloat16), np.full((4, 128, 512), 0.5, ml_dtypes.bfloat16)
    out = flashmla.absorb_query(x, weight)
    assert out.shape == (2, 3, 4, 512) and out.dtype == ml_dtypes.bfloat16 and (out == 64).all()
    back = flashmla.project_output(out, weight)
    assert back.shape == x.shape and (back == 64 * 256).all()


BAD = {
    "x dtype": dict(x=np.ones((2, 4, 8), np.float64)),
    "x rank": dict(x=np.ones(8, np.float32)),
    "weight heads": dict(x=np.ones((2, 5, 8), np.float32)),
    "x width": dict(x=np.ones((2, 4, 9), np.float32)),
    "x list": dict(x=[1.0]),
    "x axes apart": dict(x=np.ones((3, 2, 4, 8), np.float32).transpose(1, 0, 2, 3), out=np.ones((2, 3, 4, 16), np.float32)),
    "weight rank": dict(weight=np.ones((4, 8), np.float32)),
    "weight dtype": dict(weight=np.ones((4, 8, 16), np.float16)),
    "out shape": dict(out=np.ones((2, 4, 17), np.float32)),
    "out dtype": dict(out=np.ones((2, 4, 16), np.float16)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    arguments = dict(x=np.ones((2, 4, 8), np.float32), weight=np.ones((4, 8, 16), np.float32))
    with pytest.raises(ValueError) as caught:
        flashmla.absorb_query(**{**arguments, **BAD[name]})
    message = str(caught.value)
    assert name.split()[0] in message and "got" in message and "wanted" in message, message
