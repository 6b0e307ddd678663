"""flash_attn_varlen_func and its packed forms on CPU tensors: results, gradients, refusals."""

import math

import attention_oracle
import ml_dtypes
import numpy as np
import pytest
import torch
from torch_cases import DTYPES, bits, rounding, to_numpy, to_torch

import flash_mla

LENGTHS = [(3, 3), (0, 5), (17, 40), (65, 64), (1, 0), (5, 130)]


def cumulative(lengths):
    return torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)


class VarlenCase:
    def __init__(self, lengths=None, *, h_q=4, h_kv=4, d_qk=192, d_v=128, dtype="bfloat16", logit_std=1.0, seed=0, **options):
        random = np.random.default_rng(seed)
        lengths_q, lengths_kv = zip(*(lengths or LENGTHS), strict=True)
        self.cu_q, self.cu_kv = cumulative(lengths_q), cumulative(lengths_kv)
        self.longest = max(lengths_q), max(lengths_kv)
        kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
        spread = logit_std / (options.get("softmax_scale") or d_qk**-0.5) / d_qk**0.5
        self.arrays = [
            (random.standard_normal((total, heads, width)) * factor).astype(kind)
            for total, heads, width, factor in (
                (sum(lengths_q), h_q, d_qk, spread),
                (sum(lengths_kv), h_kv, d_qk, 1),
                (sum(lengths_kv), h_kv, d_v, 1),
            )
        ]
        self.q, self.k, self.v = (to_torch(x, "cpu") for x in self.arrays)
        self.dtype, self.options = dtype, options

    def run(self, **more):
        return flash_mla.flash_attn_varlen_func(
            self.q, self.k, self.v, self.cu_q, self.cu_kv, *self.longest, **self.options, **more
        )

    def expected(self):
        lengths = self.cu_q.tolist(), self.cu_kv.tolist()
        return attention_oracle.dense_prefill(
            *self.arrays, *lengths, **self.options, rounding=rounding(self.dtype, "cpu")
        )

    def expected_gradients(self, dout, dlse=None):
        lengths = self.cu_q.tolist(), self.cu_kv.tolist()
        dlse = None if dlse is None else to_numpy(dlse)
        return attention_oracle.dense_prefill_backward(
            to_numpy(dout), *self.arrays, *lengths, **self.options, dlse=dlse
        )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("d_qk", [192, 128])
def test_forward(dtype, causal, heads, d_qk):
    case = VarlenCase(h_q=heads[0], h_kv=heads[1], d_qk=d_qk, dtype=dtype, causal=causal)
    out, lse = case.run()
    assert out.dtype == DTYPES[dtype] and lse.dtype == torch.float32 and lse.shape == out.shape[:2]
    attention_oracle.check_rows(to_numpy(out), to_numpy(lse), case.expected())


@pytest.mark.parametrize("logit_std", [0.01, 8, 50])
def test_hard_logits(logit_std):
    case = VarlenCase(logit_std=logit_std, softmax_scale=0.1, causal=True)
    out, lse = case.run()
    attention_oracle.check_rows(to_numpy(out), to_numpy(lse), case.expected())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads, d_qk", [((4, 4), 192), ((6, 2), 128)])
def test_backward(dtype, causal, heads, d_qk):
    """Gradients of q, k and v through out and through lse."""
    case = VarlenCase(h_q=heads[0], h_kv=heads[1], d_qk=d_qk, dtype=dtype, causal=causal)
    inputs = [x.requires_grad_() for x in (case.q, case.k, case.v)]
    out, lse = case.run()
    random = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=random).to(out.dtype)
    dlse = torch.randn(lse.shape, generator=random)
    # a row without a key has a constant lse
    gradients = torch.autograd.grad([out, lse], inputs, [dout, dlse], retain_graph=True)
    wanted, bounds = case.expected_gradients(dout, dlse)
    for name, got, value, bound in zip("qkv", gradients, wanted, bounds, strict=True):
        assert got.dtype == out.dtype
        attention_oracle.check_within(to_numpy(got), value, bound, f"d{name}")
    wanted, bounds = case.expected_gradients(dout)
    for got, value, bound in zip(torch.autograd.grad(out, inputs, dout, retain_graph=True), wanted, bounds, strict=True):
        attention_oracle.check_within(to_numpy(got), value, bound, "gradient of out alone")
    wanted, bounds = case.expected_gradients(torch.zeros_like(dout), dlse)
    through_lse = torch.autograd.grad(lse, inputs, dlse)
    for got, value, bound in zip(through_lse, wanted, bounds, strict=True):
        attention_oracle.check_within(to_numpy(got), value, bound, "gradient of lse alone")


def test_against_torch():
    """Causal attention and its gradients beside torch's own, computed in float64."""
    case = VarlenCase([(40, 40)], causal=True)
    inputs = [x.requires_grad_() for x in (case.q, case.k, case.v)]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    wanted = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(0, 1) for x in exact), is_causal=True)
    out, _ = case.run()
    assert torch.allclose(out.double(), wanted.transpose(0, 1), rtol=2**-7, atol=2**-8)
    dout = torch.randn(out.shape, generator=torch.Generator().manual_seed(0)).bfloat16()
    got = torch.autograd.grad(out, inputs, dout)
    for ours, theirs in zip(got, torch.autograd.grad(wanted, exact, dout.double().transpose(0, 1)), strict=True):
        assert torch.allclose(ours.double(), theirs, rtol=2**-6, atol=2**-6 * theirs.abs().max().item())


def test_reductions_as_losses():
    """sum() hands an expanded scalar back."""
    case = VarlenCase([(5, 9)])
    case.q.requires_grad_()
    out, lse = case.run()
    (out.sum() + lse.sum()).backward()
    ones = torch.ones(out.shape, dtype=out.dtype), torch.ones(lse.shape)
    wanted, bounds = case.expected_gradients(*ones)
    attention_oracle.check_within(to_numpy(case.q.grad), wanted[0], bounds[0], "dq")
    assert case.k.grad is None


def test_gradients_are_the_same_bits_every_time():
    case = VarlenCase(causal=True, h_q=6, h_kv=2)
    inputs = [x.requires_grad_() for x in (case.q, case.k, case.v)]
    results = set()
    for deterministic in (False, True, False):
        out, _ = case.run(deterministic=deterministic)
        results.add(tuple(bits(x) for x in torch.autograd.grad(out, inputs, torch.ones_like(out))))
    assert len(results) == 1


def test_no_second_derivative():
    case = VarlenCase([(3, 3)])
    case.q.requires_grad_()
    out, _ = case.run()
    (gradient,) = torch.autograd.grad(out.float().square().sum(), case.q, create_graph=True)
    with pytest.raises(RuntimeError):
        gradient.float().sum().backward()


@pytest.mark.parametrize("d_qk", [192, 128])
@pytest.mark.parametrize("gradients", [False, True])
def test_packed_forms(d_qk, gradients):
    lengths = [(7, 7), (0, 0), (30, 30)]
    case = VarlenCase(lengths, d_qk=d_qk, causal=True)
    inputs = [x.requires_grad_(gradients) for x in (case.q, case.k, case.v)]
    wanted, wanted_lse = case.run()
    qkv = torch.cat(inputs, dim=-1).detach().requires_grad_(gradients)
    out, lse = flash_mla.flash_attn_varlen_qkvpacked_func(qkv, case.cu_q, 30, d_qk, causal=True)
    assert bits(out) == bits(wanted) and bits(lse) == bits(wanted_lse)
    kv = torch.cat(inputs[1:], dim=-1).detach().requires_grad_(gradients)
    out_kv, lse_kv = flash_mla.flash_attn_varlen_kvpacked_func(case.q, kv, case.cu_q, case.cu_kv, 30, 30, d_qk, causal=True)
    assert bits(out_kv) == bits(wanted) and bits(lse_kv) == bits(wanted_lse)
    if gradients:
        separate = torch.autograd.grad(wanted.sum(), inputs)
        (packed,) = torch.autograd.grad(out.sum(), qkv)
        assert bits(packed) == bits(torch.cat(separate, dim=-1))
        assert bits(torch.autograd.grad(out_kv.sum(), kv)[0]) == bits(torch.cat(separate[1:], dim=-1))


def test_bytes_outside_of_the_requests():
    """NaN beside the values (strided q, k, v) never matters."""
    case = VarlenCase(causal=True)
    wanted = bits(case.run()[0])
    for name in "qkv":
        tensor = getattr(case, name)
        wide = torch.full((*tensor.shape[:2], tensor.shape[2] + 24), math.nan, dtype=tensor.dtype)
        wide[..., : tensor.shape[2]] = tensor
        setattr(case, name, wide[..., : tensor.shape[2]])
    assert bits(case.run()[0]) == wanted


def test_empty_batches():
    case = VarlenCase([(0, 0)])
    out, lse = case.run()
    assert out.shape == (0, 4, 128) and lse.shape == (0, 4)
    case = VarlenCase([(3, 0)])
    for x in (case.q, case.k, case.v):
        x.requires_grad_()
    out, lse = case.run()
    assert (out == 0).all() and torch.isposinf(lse).all()
    dq, dk = torch.autograd.grad(out.sum(), [case.q, case.k])
    assert (dq == 0).all() and dk.shape == (0, 4, 192)


@pytest.mark.parametrize(
    "name, spoil, got",
    [
        ("q", lambda t: t[0], "rank 2"),
        ("q", lambda t: t.float(), "float32"),
        ("k", lambda t: t.half(), "float16"),
        ("k", lambda t: t[..., :128], "128"),
        ("v", lambda t: t[:-1], "v"),
        ("cu_q", lambda t: t.long(), "int64"),
        ("cu_kv", lambda t: t[:-1], "cu_seqlens_kv"),
        ("q", lambda t: None, "NoneType"),
    ],
)
def test_bad_argument(name, spoil, got):
    case = VarlenCase()
    setattr(case, name, spoil(getattr(case, name)))
    with pytest.raises(ValueError) as caught:
        case.run()
    assert got in str(caught.value) and name.replace("cu_", "cu_seqlens_") in str(caught.value), str(caught.value)


def test_dropout_is_refused():
    with pytest.raises(ValueError, match="dropout_p: got 0.1, wanted 0"):
        VarlenCase().run(dropout_p=0.1)


@pytest.mark.parametrize("width", [0, 192, 193])
def test_bad_packing(width):
    with pytest.raises(ValueError, match="qkv: got shape"):
        flash_mla.flash_attn_varlen_qkvpacked_func(torch.zeros(3, 2, 384).bfloat16(), cumulative([3]), 3, width)
    with pytest.raises(ValueError, match="kv: got shape"):
        flash_mla.flash_attn_varlen_kvpacked_func(
            torch.zeros(3, 2, 192), torch.zeros(3, 2, 192), cumulative([3]), cumulative([3]), 3, 3, width
        )
