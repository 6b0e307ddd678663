"""Dense decode in float64 on the tensors' own device, and how far a matrix-unit kernel may be from it (docs/numerics.md).

Requests are padded to groups, so that a ragged batch costs a few large products. The bound is docs/numerics.md's with one step
more: sum_j w_j |v_j - out| <= sqrt(sum_j w_j) sqrt(sum_j w_j (v_j - out)^2), whose right side needs products of matrices only.

That bound is a worst case for every single row, and wide for the LSE. So the root mean square of the LSE's errors over all rows
has a limit too, in units of LSE_UNIT * (1 + largest |logit| + ln keys): what 36 sums of 16 products that each cut may lose twice over.
"""

import math
from dataclasses import dataclass

import torch

UNIT = 2.0**-24  # fp32
ADDITION = 2.0**-23  # one fp32 addition that may cut
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
UNDERFLOW = {torch.bfloat16: 2.0**-126, torch.float16: 2.0**-25}
PARTIALS = 2.0**-11  # parts of split rows are stored in fp16, with an exponent per row and column half
PARTIALS_UNDERFLOW = 2.0**-39  # of the largest value of such a half
LSE_UNIT = 2 * 36 * ADDITION
D_V = 512


@dataclass
class Part:
    """Exact results and bounds of a group of requests, for some query tokens and the heads of one KV head."""

    requests: torch.Tensor
    tokens: slice
    heads: slice
    out: torch.Tensor  # (requests, tokens, heads, 512)
    lse: torch.Tensor  # (requests, tokens, heads)
    out_bound: torch.Tensor
    lse_bound: torch.Tensor
    lse_typical: torch.Tensor


def groups(lengths, limit):
    """Indices of requests by length, cut so that requests x longest length stays below `limit` tokens."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    at = 0
    while at < len(order):
        longest = max(1, lengths[order[at]])
        take = max(1, min(limit // longest, 4096))
        yield order[at : at + take], longest
        at += take


def decode(case, limit=1 << 27):
    """Yields a Part for every row of the case. `limit` is about how many float64 elements one temporary may have."""
    b, s_q, h_q, d_qk = case.q.shape
    h_kv, page = case.k_cache.shape[2], case.k_cache.shape[1]
    heads_per_kv = h_q // h_kv
    rows = s_q * heads_per_kv
    for indices, longest in groups(case.lengths, max(1, limit // (d_qk + min(rows, 1024)))):
        requests = torch.tensor(indices, device=case.q.device)
        lengths = torch.tensor([case.lengths[i] for i in indices], device=case.q.device)
        pages = -(-longest // page)
        position = torch.arange(pages * page, device=case.q.device)
        live = position < lengths[:, None]
        table = torch.zeros(len(indices), pages, dtype=torch.long, device=case.q.device)
        width = min(pages, case.block_table.shape[1])
        table[:, :width] = case.block_table[requests, :width].long()
        table[~live.view(len(indices), pages, page)[:, :, 0]] = 0
        tokens_at_once = max(1, limit // (len(indices) * heads_per_kv * (pages * page + 2 * D_V)))
        for kv_head in range(h_kv):
            if case.k_cache.shape[0] == 0:
                k = torch.zeros(len(indices), pages * page, d_qk, dtype=torch.float64, device=case.q.device)
            else:
                k = case.k_cache[table, :, kv_head].reshape(len(indices), pages * page, d_qk)
                k = torch.where(live[:, :, None], k, 0).double()
            heads = slice(kv_head * heads_per_kv, (kv_head + 1) * heads_per_kv)
            for first in range(0, s_q, tokens_at_once):
                tokens = slice(first, min(s_q, first + tokens_at_once))
                visible_keys = lengths[:, None]
                if case.causal:
                    token = torch.arange(tokens.start, tokens.stop, device=case.q.device)
                    visible_keys = (lengths[:, None] - s_q + token + 1).clamp(min=0)
                yield _part(case, requests, tokens, heads, k, position, visible_keys)


def _rounded(count, unit):
    return torch.expm1(count * (unit / (1 - unit)))


def _both(a, b):
    return a + b + a * b


def _part(case, requests, tokens, heads, k, position, visible_keys):
    q = case.q[requests, tokens, heads].double()
    n, s, h, d_qk = q.shape
    q = q.reshape(n, s * h, d_qk)
    keys = visible_keys.expand(n, s).repeat_interleave(h, dim=1)[:, :, None].double()  # of each row
    visible = position < keys
    scale = case.scale
    logits = torch.where(visible, q @ k.mT * scale, -math.inf)
    lse = logits.logsumexp(-1, keepdim=True)
    some = keys > 0
    top = torch.where(some, logits.amax(-1, keepdim=True), 0)
    p = torch.where(visible, torch.exp(logits - torch.where(some, lse, 0)), 0)
    v = k[:, :, :D_V]
    out = p @ v

    finite = torch.where(visible, logits, 0)
    largest = finite.abs().amax(-1, keepdim=True) + keys.clamp(min=1).log()
    rescales = torch.ceil(keys / 16) + 1
    error = math.expm1((d_qk + 1) * ADDITION) * abs(scale) * (q.abs() @ k.abs().mT)
    error = error + 8 * UNIT * (finite.abs() + largest) + (rescales + 2) * 2.0**-22 + 2.0**-21
    w = p * torch.expm1(error)
    adding = _rounded(keys + 1 + rescales + 4, ADDITION)
    numerator = _both(adding, _both(ROUNDING[case.q.dtype], PARTIALS))
    total = torch.where(some, (lse - top).exp(), 1)
    underflow = torch.where(visible, (finite - top).exp().clamp(max=UNDERFLOW[case.q.dtype]), 0) / total
    w_sum = w.sum(-1, keepdim=True)
    in_sum = (p.sum(-1, keepdim=True) + w_sum) * adding
    squares = w @ v.square()
    spread = squares - 2 * out * (w @ v) + out.square() * w_sum
    bound = (w_sum * (spread.clamp(min=0) + 1e-12 * squares)).sqrt()
    bound = bound + ((p + w) * numerator + underflow) @ v.abs() + in_sum * out.abs()
    relative = w_sum + in_sum
    bound = torch.where(relative < 0.5, bound / (1 - relative), math.inf)
    stored = ROUNDING[case.q.dtype] + 8 * UNIT
    bound = bound + stored * (out.abs() + bound) + UNDERFLOW[case.q.dtype]
    bound = bound + PARTIALS_UNDERFLOW * v.abs().amax(dim=(1, 2), keepdim=True)
    lse_bound = torch.where(relative < 0.5, -torch.log1p(-relative), math.inf) + 8 * UNIT * largest + 2.0**-21
    lse = torch.where(some, lse, math.inf)

    def shaped(x):
        return x.view(n, s, h, x.shape[-1])

    return Part(
        requests, tokens, heads, shaped(out), shaped(lse)[..., 0], shaped(bound), shaped(lse_bound)[..., 0],
        shaped(LSE_UNIT * (1 + largest))[..., 0],
    )  # fmt: skip


def compare(case, out, lse):
    """(complaint or None, Frobenius-relative error of out, largest share of the bounds, rms of the LSE's errors in their unit)."""
    lse_squares = lse_rows = torch.zeros((), dtype=torch.float64, device=out.device)
    difference = reference = torch.zeros((), dtype=torch.float64, device=out.device)
    share = torch.zeros((), dtype=torch.float64, device=out.device)
    complaints = []
    for part in decode(case):
        got_out = out[part.requests, part.tokens, part.heads].double()
        got_lse = lse[part.requests][:, part.heads, part.tokens].transpose(1, 2).double()
        for name, got, wanted, bound in (
            ("out", got_out, part.out, part.out_bound),
            ("lse", got_lse, part.lse, part.lse_bound),
        ):
            finite = wanted.isfinite()
            odd = torch.where(finite, ~got.isfinite(), (got != wanted) & ~(got.isnan() & wanted.isnan()))
            error = torch.where(finite & got.isfinite(), (got - wanted).abs(), 0)
            shares = torch.where(finite, error / bound, 0)
            bad = odd | ~(shares <= 1)
            share = torch.maximum(share, shares.max() if shares.numel() else share)
            if name == "out":
                difference = difference + error.square().sum()
                reference = reference + torch.where(finite, wanted, 0).square().sum()
            else:
                lse_squares = lse_squares + (error / part.lse_typical).nan_to_num(0).square().sum()
                lse_rows = lse_rows + finite.sum()
            if len(complaints) < 2 and bad.any():
                at = bad.nonzero()[0].tolist()
                where = tuple(at)
                request = part.requests[at[0]].item()
                complaints.append(
                    f"{name}: {int(bad.sum())} wrong, first request {request} (length {case.lengths[request]}) token "
                    f"{part.tokens.start + at[1]} head {part.heads.start + at[2]}{f' column {at[3]}' if len(at) > 3 else ''}: "
                    f"got {got[where].item():.9g}, wanted {wanted[where].item():.9g} within {bound[where].item():.3g}"
                )
    relative = (difference / reference.clamp(min=1e-300)).sqrt().item()
    lse_rms = (lse_squares / lse_rows.clamp(min=1)).sqrt().item()
    if lse_rms > 1 and not complaints:
        complaints.append(f"lse: root mean square of the errors is {lse_rms:.3g} times what 16-product sums that cut can lose")
    return "; ".join(complaints) or None, relative, share.item(), lse_rms
