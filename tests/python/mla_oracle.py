"""Dense MLA decode in float64 with plain NumPy, and how far a correct kernel may be from it.

Independent of the library: nothing here calls it. The bound is that of docs/numerics.md with |v - out| widened to |v| + |out|, which
is cheaper and, with the small weight errors of fp32 sums, hardly larger.
"""

from dataclasses import dataclass

import numpy as np

FP32_UNIT = 2.0**-24
EXP2_ERROR = 2.0**-22  # relative, of one 2^x
LOG2_ERROR = 2.0**-21  # absolute, in the natural LSE
KEYS_A_RESCALE = 16
UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
UNDERFLOW = {"float32": 2.0**-126, "float16": 2.0**-25, "bfloat16": 2.0**-126}


@dataclass(frozen=True)
class Rounding:
    """Where a kernel rounds: the dtype of the softmax weights and of partial results, the error of one fp32 addition."""

    weights: str = "float32"
    partials: str = "float32"
    addition: float = 2.0**-24


def rounded(count, unit):
    """Relative error of `count` roundings in a row."""
    return np.expm1(count * unit / (1 - unit))


def both(a, b):
    return a + b + a * b


@dataclass
class Expected:
    out: np.ndarray  # (b, s_q, h_q, d_v) float64
    lse: np.ndarray  # (b, h_q, s_q) float64
    out_bound: np.ndarray
    lse_bound: np.ndarray

    def heads(self, which):
        """The same for some of the query heads (a slice)."""
        return Expected(self.out[:, :, which], self.lse[:, which], self.out_bound[:, :, which], self.lse_bound[:, which])


def decode(q, k_cache, block_table, lengths, *, d_v=512, softmax_scale=None, causal=False, dtype=None, rounding=Rounding()):
    """The exact result for NumPy inputs of any float type, never touching a key that no row sees; out is stored as `dtype`, or q's."""
    b, s_q, h_q, d_qk = q.shape
    page_size, h_kv = k_cache.shape[1:3]
    scale = d_qk**-0.5 if softmax_scale is None else softmax_scale
    group = h_q // h_kv
    expected = Expected(
        np.zeros((b, s_q, h_q, d_v)),
        np.full((b, h_q, s_q), np.inf),
        np.zeros((b, s_q, h_q, d_v)),
        np.zeros((b, h_q, s_q)),
    )
    for request in range(b):
        length = int(lengths[request])
        if length == 0:
            continue
        pages = block_table[request, : -(-length // page_size)]
        keys = k_cache[pages].reshape(-1, h_kv, d_qk)[:length].astype(np.float64)
        tokens = np.arange(s_q)
        visible = np.maximum(0, length - s_q + tokens + 1) if causal else np.full(s_q, length)
        seen = tokens[visible > 0]
        for kv_head in range(h_kv):
            heads = slice(kv_head * group, (kv_head + 1) * group)
            rows = q[request, seen, heads].astype(np.float64).reshape(-1, d_qk)
            heads_keys = keys[:, kv_head]
            results = attend(
                rows, heads_keys, heads_keys[:, :d_v], np.repeat(visible[seen], group)[:, None], scale, dtype or q.dtype.name, rounding
            )
            for name, values in zip(("out", "lse", "out_bound", "lse_bound"), results, strict=True):
                values = values.reshape(len(seen), group, *values.shape[1:])
                if values.ndim == 3:
                    getattr(expected, name)[request, seen, heads] = values
                else:
                    getattr(expected, name)[request, heads, seen] = values
    return expected


def attend(q, keys, values, visible, scale, dtype, rounding):
    """Rows of one KV head: q (rows, d_qk), keys (n, d_qk), values (n, d_v), visible (rows, 1) >= 1 -> out, lse and their bounds.

    Outputs are stored in `dtype`, a name.
    """
    logits = scale * (q @ keys.T)
    magnitude = abs(scale) * (np.abs(q) @ np.abs(keys).T)
    masked = np.arange(len(keys)) >= visible
    logits[masked] = -np.inf
    largest_logit = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - largest_logit)
    total = weights.sum(axis=1, keepdims=True)
    lse = (largest_logit + np.log(total))[:, 0]
    out = weights @ values / total

    logits[masked] = 0
    rescales = np.ceil(visible / KEYS_A_RESCALE) + 1
    reach = np.abs(logits).max(axis=1, keepdims=True) + np.log(visible)
    dot = rounded(keys.shape[1] + 1, rounding.addition) * magnitude
    arguments = 8 * FP32_UNIT * (np.abs(logits) + reach)
    weight_error = np.expm1(dot + arguments + (rescales + 2) * EXP2_ERROR + LOG2_ERROR)
    adding = rounded(visible + rescales + 4, rounding.addition)
    numerator = both(both(adding, UNIT_ROUNDOFF[rounding.weights]), UNIT_ROUNDOFF[rounding.partials])
    underflow = np.minimum(UNDERFLOW[rounding.weights], weights)
    term = (weights * both(weight_error, numerator) + underflow) / total
    sum_error = ((weights * both(weight_error, adding) + underflow) / total).sum(axis=1, keepdims=True)
    assert (sum_error < 0.5).all(), "these data cannot be resolved in the kernel's precision"

    error = term @ np.abs(values)
    computed = (error + np.abs(out) * sum_error) / (1 - sum_error)
    stored = both(rounded(4, FP32_UNIT), UNIT_ROUNDOFF[dtype])
    out_bound = computed + stored * (np.abs(out) + computed) + UNDERFLOW[dtype] + UNDERFLOW[rounding.partials]
    lse_bound = (-np.log1p(-sum_error) + 8 * FP32_UNIT * reach + LOG2_ERROR)[:, 0]
    return out, lse, out_bound, lse_bound


def check(out, lse, expected):
    """Asserts that a result lies within its bounds; +inf and 0 of rows without a key must be exact."""
    out = np.asarray(out).astype(np.float64)
    lse = np.asarray(lse).astype(np.float64)
    assert out.shape == expected.out.shape and lse.shape == expected.lse.shape
    empty = np.isinf(expected.lse)
    assert (np.isposinf(lse) == empty).all(), "LSE must be +inf exactly for the rows without a key"
    assert np.isfinite(out).all()
    assert (out.transpose(0, 2, 1, 3)[empty] == 0).all(), "rows without a key must be 0"
    lse_error = np.abs(np.where(empty, 0, lse) - np.where(empty, 0, expected.lse))
    assert (lse_error <= expected.lse_bound).all(), f"LSE is off by {lse_error.max()}"
    out_error = np.abs(out - expected.out)
    share = out_error / np.maximum(expected.out_bound, 1e-300)
    assert (out_error <= expected.out_bound).all(), f"out is off by {share.max():.2f} times the bound"
