"""Sparse decode, prefill and its backward, merge and the projections in float64 NumPy, with bounds on a correct kernel's error.

Built on mla_oracle.attend; independent of the library. Inputs are exact values (dequantised caches, 16-bit arrays widened).
"""

from dataclasses import dataclass

import numpy as np
from mla_oracle import EXP2_ERROR, FP32_UNIT, LOG2_ERROR, UNDERFLOW, UNIT_ROUNDOFF, Rounding, attend, both, rounded


@dataclass
class Rows:
    """Expected results of rows (..., d_v), with LSE and largest logit (...,), and their bounds."""

    out: np.ndarray
    lse: np.ndarray
    max_logits: np.ndarray
    out_bound: np.ndarray
    lse_bound: np.ndarray

    @classmethod
    def empty(cls, *shape):
        rows = shape[:-1]
        return cls(np.zeros(shape), np.full(rows, np.inf), np.full(rows, -np.inf), np.zeros(shape), np.zeros(rows))


def chosen(indices, topk_length, num_tokens):
    """The tokens that one query token's indices name, those outside the pool left out."""
    ids = np.asarray(indices, np.int64)
    if topk_length is not None:
        ids = ids[: max(0, int(topk_length))]
    return ids[(ids >= 0) & (ids < num_tokens)]


def attend_token(rows, keys, d_v, scale, dtype, sink, rounding):
    """Query heads (h, d_qk) of one token over the keys (n, d_qk) that it sees: fields of Rows."""
    if len(keys) == 0:
        return Rows.empty(len(rows), d_v)
    visible = np.full((len(rows), 1), len(keys))
    out, lse, out_bound, lse_bound = attend(rows, keys, keys[:, :d_v], visible, scale, dtype, rounding)
    if sink is not None:
        out, out_bound = apply_sink(out, lse, out_bound, lse_bound, np.asarray(sink, np.float64), UNDERFLOW[dtype])
    return Rows(out, lse, (scale * (rows @ keys.T)).max(axis=1), out_bound, lse_bound)


def apply_sink(out, lse, out_bound, lse_bound, sink, underflow):
    """out times exp(lse) / (exp(lse) + exp(sink)); sink is one a row. `underflow`: absolute error of storing a tiny result."""
    with np.errstate(over="ignore"):
        factor = 1 / (1 + np.exp(sink - lse))
    sizes = np.abs(lse) + np.where(np.isfinite(sink), np.abs(sink), 0)
    error = np.expm1(lse_bound + 4 * EXP2_ERROR + 8 * FP32_UNIT * sizes)
    return out * factor[:, None], factor[:, None] * (out_bound + np.abs(out) * both(error, error)[:, None]) + underflow


def sparse_decode(q, tokens, indices, *, topk_length=None, extra=None, d_v=512, softmax_scale=None, attn_sink=None, dtype=None,
                  rounding=Rounding()):
    """Rows of shape (b, s_q, h_q, ...). tokens (n, d_qk) is the pool in slot order; extra = (tokens, indices, topk_length)."""
    b, s_q, h_q, d_qk = q.shape
    scale = d_qk**-0.5 if softmax_scale is None else softmax_scale
    expected = Rows.empty(b, s_q, h_q, d_v)

    def keys_of(pool, ids, lengths, request, token):
        length = None if lengths is None else np.broadcast_to(np.reshape(lengths, (b, -1)), (b, s_q))[request, token]
        return pool[chosen(ids[request, token], length, len(pool))]

    for request in range(b):
        for token in range(s_q):
            keys = keys_of(tokens, indices, topk_length, request, token)
            if extra is not None:
                keys = np.concatenate([keys, keys_of(*extra, request, token)])
            rows = attend_token(
                q[request, token].astype(np.float64), keys, d_v, scale, dtype or q.dtype.name, attn_sink, rounding
            )
            store(expected, (request, token), rows)
    return expected


def store(expected, where, rows):
    for name in ("out", "lse", "max_logits", "out_bound", "lse_bound"):
        getattr(expected, name)[where] = getattr(rows, name)


def sparse_prefill(q, kv, indices, *, topk_length=None, **options):
    """Rows of shape (s_q, h_q, ...)."""
    lengths = None if topk_length is None else topk_length[None]
    found = sparse_decode(q[None], kv[:, 0].astype(np.float64), indices[None, :, 0], topk_length=lengths, **options)
    return Rows(*(getattr(found, name)[0] for name in ("out", "lse", "max_logits", "out_bound", "lse_bound")))


def requests(cu_seqlens_q, cu_seqlens_kv):
    """(query slice, key slice) of every request."""
    for i in range(len(cu_seqlens_q) - 1):
        yield slice(cu_seqlens_q[i], cu_seqlens_q[i + 1]), slice(cu_seqlens_kv[i], cu_seqlens_kv[i + 1])


def visible_keys(n_q, n_kv, causal):
    return np.maximum(0, n_kv - n_q + np.arange(n_q) + 1) if causal else np.full(n_q, n_kv)


def dense_prefill(q, k, v, cu_seqlens_q, cu_seqlens_kv, *, softmax_scale=None, causal=False, rounding=Rounding()):
    """Rows of shape (total_q, h_q, ...); max_logits stays empty."""
    total_q, h_q, d_qk = q.shape
    group = h_q // k.shape[1]
    scale = d_qk**-0.5 if softmax_scale is None else softmax_scale
    expected = Rows.empty(total_q, h_q, v.shape[2])
    for queries, keys in requests(cu_seqlens_q, cu_seqlens_kv):
        visible = visible_keys(queries.stop - queries.start, keys.stop - keys.start, causal)
        seen = np.flatnonzero(visible)
        if len(seen) == 0:
            continue
        for head in range(h_q):
            results = attend(
                q[queries, head][seen].astype(np.float64),
                k[keys, head // group].astype(np.float64),
                v[keys, head // group].astype(np.float64),
                visible[seen, None],
                scale,
                q.dtype.name,
                rounding,
            )
            for name, values in zip(("out", "lse", "out_bound", "lse_bound"), results, strict=True):
                getattr(expected, name)[queries, head][seen] = values
    return expected


def dense_prefill_backward(dout, q, k, v, cu_seqlens_q, cu_seqlens_kv, *, softmax_scale=None, causal=False, dlse=None,
                           dtype=None):
    """((dq, dk, dv), their error bounds) for a kernel that works in `dtype`, q's by default.

    Relative roundings that a correct one may do: of the given out and of the weights, of the score gradients, and of the
    results; fp32 sums are small beside them.
    """
    h_q, d_qk = q.shape[1:]
    group = h_q // k.shape[1]
    scale = d_qk**-0.5 if softmax_scale is None else softmax_scale
    dtype = dtype or q.dtype.name
    unit = UNIT_ROUNDOFF[dtype]
    gradients = [np.zeros(x.shape) for x in (q, k, v)]
    sizes = [np.zeros(x.shape) for x in (q, k, v)]
    for queries, keys in requests(cu_seqlens_q, cu_seqlens_kv):
        visible = visible_keys(queries.stop - queries.start, keys.stop - keys.start, causal)
        for head in range(h_q):
            qs, dos = q[queries, head].astype(np.float64), dout[queries, head].astype(np.float64)
            ks, vs = k[keys, head // group].astype(np.float64), v[keys, head // group].astype(np.float64)
            logits = scale * (qs @ ks.T)
            logits[np.arange(logits.shape[1]) >= visible[:, None]] = -np.inf
            largest = logits.max(axis=1, keepdims=True, initial=-1e300)
            weights = np.exp(logits - largest)
            weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
            dweights = dos @ vs.T
            shift = (weights * dweights).sum(axis=1, keepdims=True)
            shift_size = np.abs(dos) @ np.abs(weights @ vs).T
            shift_size = np.diagonal(shift_size)[:, None]
            through_lse = 0.0 if dlse is None else dlse[queries, head].astype(np.float64)[:, None]
            dlogits = weights * (dweights - shift + through_lse)
            size = weights * (np.abs(dos) @ np.abs(vs).T + shift_size + np.abs(through_lse))
            for i, part, part_size in (
                (0, scale * dlogits @ ks, abs(scale) * size @ np.abs(ks)),
                (1, scale * dlogits.T @ qs, abs(scale) * size.T @ np.abs(qs)),
                (2, weights.T @ dos, weights.T @ np.abs(dos)),
            ):
                where = (queries, head) if i == 0 else (keys, head // group)
                gradients[i][where] += part
                sizes[i][where] += part_size
    tiny = UNDERFLOW[dtype]
    bounds = [4 * unit * s + unit * np.abs(g) + tiny for g, s in zip(gradients, sizes, strict=True)]
    return gradients, bounds


def merge(outs, lses, dtype):
    """Rows of outs[0]'s shape from parts with LSEs laid out like the rows of outs (one axis less); results stored in `dtype`."""
    lses = np.stack([np.asarray(x, np.float64) for x in lses])
    outs = np.stack([np.asarray(x).astype(np.float64) for x in outs])
    dead = np.isinf(lses)
    weightless = np.where(dead, -np.inf, lses)
    largest = weightless.max(axis=0)
    empty = dead.all(axis=0)
    weights = np.exp(weightless - np.where(empty, 0, largest))
    total = np.where(empty, 1, weights.sum(axis=0))
    outs = np.where((weights == 0)[..., None], 0, outs)
    terms = weights[..., None] * outs / total[..., None]
    out = terms.sum(axis=0)
    lse = np.where(empty, np.inf, np.where(empty, 0, largest) + np.log(total))
    spread = np.where(dead, 0, np.abs(lses)).max(axis=0)
    error = np.expm1(2 * (EXP2_ERROR + 8 * FP32_UNIT * spread + rounded(len(outs) + 4, FP32_UNIT)))
    out_bound = np.abs(terms).sum(axis=0) * error[..., None] + UNIT_ROUNDOFF[dtype] * (np.abs(out) * 1.01) + UNDERFLOW[dtype]
    lse_bound = error + 8 * FP32_UNIT * spread + LOG2_ERROR
    return Rows(out, lse, np.where(empty, -np.inf, largest), out_bound, lse_bound)


def project(x, weight, dtype):
    """einsum over x's last axis (n, h, k) with weight (h, k, m), and its bound: fp32 sums, stored in `dtype`."""
    x, weight = x.astype(np.float64), weight.astype(np.float64)
    out = np.einsum("nhk,hkm->nhm", x, weight)
    size = np.einsum("nhk,hkm->nhm", np.abs(x), np.abs(weight))
    return out, rounded(x.shape[2] + 1, FP32_UNIT) * size + UNIT_ROUNDOFF[dtype] * np.abs(out) * 1.01 + UNDERFLOW[dtype]


def check_rows(out, lse, expected, *, lse_first_heads=False):
    """Asserts that a result lies within its bounds. Decode returns lse as (b, h_q, s_q): lse_first_heads."""
    out, lse = np.asarray(out).astype(np.float64), np.asarray(lse).astype(np.float64)
    if lse_first_heads:
        lse = lse.transpose(0, 2, 1)
    assert out.shape == expected.out.shape and lse.shape == expected.lse.shape
    empty = np.isposinf(expected.lse)
    assert (np.isposinf(lse) == empty).all(), "LSE must be +inf exactly for the rows without a key"
    assert np.isfinite(out).all() and (out[empty] == 0).all()
    check_within(np.where(empty, 0, lse), np.where(empty, 0, expected.lse), expected.lse_bound, "lse")
    check_within(out, expected.out, expected.out_bound, "out")


def check_within(got, wanted, bound, name):
    error = np.abs(np.asarray(got).astype(np.float64) - wanted)
    share = error / np.maximum(bound, 1e-300)
    assert (error <= bound).all(), f"{name} is off by {error.max():.3g}, {share.max():.2f} times the bound"
