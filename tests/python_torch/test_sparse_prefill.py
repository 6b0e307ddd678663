"""flash_mla_sparse_fwd on CPU tensors against the float64 oracle."""

import math

import attention_oracle
import ml_dtypes
import numpy as np
import pytest
import torch
from sparse_cases import random_indices
from torch_cases import bits, rounding, to_numpy, to_torch

import flash_mla


class PrefillCase:
    """Every seventh row of kv is NaN and named by no index."""

    def __init__(self, s_q=5, s_kv=90, h_q=16, topk=70, *, d_qk=576, d_v=512, dtype="bfloat16", topk_length=None, sink=None, seed=0):
        random = np.random.default_rng(seed)
        kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
        q = random.standard_normal((s_q, h_q, d_qk)).astype(kind)
        kv = random.standard_normal((s_kv, 1, d_qk))
        kv[3::7] = np.nan
        live = np.array([row for row in range(s_kv) if row % 7 != 3])
        self.indices_values = random_indices(random, live, (s_q, 1, topk), None if topk_length is None else np.c_[topk_length])
        self.arrays = q, kv.astype(kind)
        self.q, self.kv = (to_torch(x, "cpu") for x in self.arrays)
        self.indices = torch.from_numpy(self.indices_values)
        self.d_v, self.dtype, self.lengths, self.sink = d_v, dtype, topk_length, sink

    def run(self, scale=0.05, **more):
        if self.lengths is not None:
            more.setdefault("topk_length", torch.tensor(self.lengths, dtype=torch.int32))
        if self.sink is not None:
            more.setdefault("attn_sink", torch.tensor(self.sink, dtype=torch.float32))
        return flash_mla.flash_mla_sparse_fwd(self.q, self.kv, self.indices, scale, self.d_v, **more)

    def run_and_check(self, scale=0.05, **more):
        out, max_logits, lse = self.run(scale, **more)
        lengths = None if self.lengths is None else np.asarray(self.lengths)
        expected = attention_oracle.sparse_prefill(
            *self.arrays,
            self.indices_values,
            topk_length=lengths,
            attn_sink=self.sink,
            softmax_scale=scale,
            d_v=self.d_v,
            rounding=rounding(self.dtype, "cpu"),
        )
        assert max_logits.dtype == lse.dtype == torch.float32 and out.dtype == self.q.dtype
        attention_oracle.check_rows(to_numpy(out), to_numpy(lse), expected)
        # the maximum has no sum behind it: only the dot product's error, which the bound of lse covers
        finite = np.isfinite(expected.max_logits)
        assert (np.isneginf(to_numpy(max_logits)) == ~finite).all()
        error = np.abs(to_numpy(max_logits)[finite] - expected.max_logits[finite])
        assert (error <= expected.lse_bound[finite]).all()
        return out, max_logits, lse


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("dims", [(576, 512), (512, 512), (320, 256)])
def test_forward(dtype, dims):
    PrefillCase(d_qk=dims[0], d_v=dims[1], dtype=dtype).run_and_check()


@pytest.mark.parametrize("h_q", [1, 8, 12, 63, 64, 128])
def test_heads(h_q):
    PrefillCase(s_q=3, h_q=h_q).run_and_check()


@pytest.mark.parametrize("topk", [1, 63, 65, 100, 192, 2047])
def test_topk(topk):
    """Field case 38."""
    PrefillCase(s_q=2, h_q=4, topk=topk, s_kv=3000).run_and_check()


@pytest.mark.parametrize("sink", [None, [-1.5, 0, 2.5, math.inf, -math.inf, 1]])
def test_lengths_and_sink(sink):
    """Field case 5: rows of length 0 next to full ones; lse ignores the sink."""
    case = PrefillCase(s_q=5, h_q=6, topk=70, topk_length=[0, 70, 1, 0, 33], sink=sink)
    out, max_logits, lse = case.run_and_check()
    assert (out[[0, 3]] == 0).all() and torch.isposinf(lse[[0, 3]]).all() and torch.isneginf(max_logits[[0, 3]]).all()


def test_natural_logarithm():
    """Field case 58: lse is torch.logsumexp of the scaled scores, max_logits their maximum."""
    case = PrefillCase(s_q=1, s_kv=3, h_q=2, topk=3)
    case.kv = torch.randn(3, 1, 576, generator=torch.Generator().manual_seed(0)).bfloat16()
    case.indices = torch.arange(3, dtype=torch.int32).view(1, 1, 3)
    scores = 0.05 * case.q[0].double() @ case.kv[:, 0].double().T
    _, max_logits, lse = case.run()
    assert torch.allclose(lse[0].double(), scores.logsumexp(-1), atol=1e-5)
    assert torch.allclose(max_logits[0].double(), scores.amax(-1), atol=1e-5)


def test_caller_owned_out():
    case = PrefillCase()
    wanted = bits(case.run()[0])
    buffer = torch.full((9, 16, 512), math.nan, dtype=torch.bfloat16)
    out, _, _ = case.run(out=buffer[2:7])
    assert out.data_ptr() == buffer[2:7].data_ptr() and bits(out) == wanted and buffer[[0, 1, 7, 8]].isnan().all()


def test_nothing_to_do():
    """Field case 9: s_q = 0; and no keys at all."""
    case = PrefillCase(s_q=0)
    out, max_logits, lse = case.run()
    assert out.shape == (0, 16, 512) and max_logits.shape == lse.shape == (0, 16)
    case = PrefillCase()
    case.kv = case.kv[:0]
    out, max_logits, lse = case.run()
    assert (out == 0).all() and torch.isposinf(lse).all() and torch.isneginf(max_logits).all()


@pytest.mark.parametrize(
    "name, spoil, got",
    [
        ("q", lambda t: t[0], "rank 2"),
        ("q", lambda t: None, "NoneType"),
        ("kv", lambda t: t[:, 0], "rank 2"),
        ("kv", lambda t: t.half(), "float16"),
        ("indices", lambda t: t[:, 0], "rank 2"),
        ("indices", lambda t: t.long(), "int64"),
        ("indices", lambda t: t[:2], "2"),
    ],
)
def test_bad_argument(name, spoil, got):
    case = PrefillCase()
    setattr(case, name, spoil(getattr(case, name)))
    out = torch.full((5, 16, 512), 3.0, dtype=torch.bfloat16)
    with pytest.raises(ValueError) as caught:
        case.run(out=out)
    assert name in str(caught.value) and got in str(caught.value), str(caught.value)
    assert (out == 3.0).all()


@pytest.mark.parametrize("more", [{"topk_length": torch.zeros(4, dtype=torch.int32)}, {"attn_sink": torch.zeros(3)}])
def test_bad_options(more):
    with pytest.raises(ValueError, match=next(iter(more))):
        PrefillCase().run(**more)


@pytest.mark.parametrize("d_v", [0, -1])
def test_bad_value_length(d_v):
    case = PrefillCase()
    case.d_v = d_v
    with pytest.raises(ValueError, match="d_v|out"):
        case.run()
