"""Same inputs, same bits; and with batch_invariant, bits of a request that do not depend on the rest of its batch."""

import random

import torch
from cases import Case

import flashmla


def bits(out, lse):
    return out.view(torch.int16), lse.view(torch.int32)


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def where_different(name, first, second):
    """Which elements of two tensors (b, ...) have other bits, in words: how a wrong tile, row or partial result shows."""
    integers = {2: torch.int16, 4: torch.int32}[first.element_size()]
    other = (first.view(integers) != second.view(integers)).nonzero()
    if not len(other):
        return []
    ranges = " x ".join(f"{int(low)}..{int(high)}" for low, high in zip(other.amin(0), other.amax(0), strict=True))
    place = tuple(other[0].tolist())
    values = f"{first[place].item():.6g} and {second[place].item():.6g} at {list(place)}"
    return [f"{len(other)} of {name}{list(first.shape)} within {ranges}, {len(other[:, 0].unique())} requests; {values}"]


def repeats(case, times):
    """Goes on after a difference: how often it comes, and where, tells a race's kind."""
    case.build()
    first = case.run()
    complaints = []
    for i in range(times):
        again = case.run()
        if not same(bits(*first), bits(*again)):
            places = where_different("out", first[0], again[0]) + where_different("lse", first[1], again[1])
            complaints.append(f"run {i + 2} differs from run 1: {', '.join(places)}")
    return f"{len(complaints)} of {times} runs: {'; '.join(complaints[:4])}" if complaints else None


def invariant(h_q, s_q, length, dtype, device, sizes, most):
    """One request alone, then at some place among others of other lengths, in several orders."""
    rng = random.Random(h_q + length)
    options = {"h_q": h_q, "s_q": s_q, "dtype": dtype, "causal": s_q > 1, "device": device}
    full = Case([length] + [rng.randint(0, most) for _ in range(max(sizes) - 1)], seed=length, **options).build()

    def decode(requests):
        index = torch.tensor(requests, device=device)
        return bits(
            *flashmla.decode(
                full.q[index].contiguous(), full.k_cache, full.block_table[index].contiguous(), full.cache_seqlens[index],
                causal=full.causal, batch_invariant=True,
            )
        )  # fmt: skip

    alone = decode([0])
    for size in sizes:
        for _ in range(2):
            requests = [0] + rng.sample(range(1, max(sizes)), size - 1)
            rng.shuffle(requests)
            at = requests.index(0)
            batch = decode(requests)
            if not same(alone, [x[at : at + 1] for x in batch]):
                return f"other bits at place {at} of {size}"
    return None


def run(section, device, short=False, small=False, most_repeats=100):
    times = 3 if short or small else most_repeats
    scale = 0.02 if small else 1.0
    rng = random.Random(37)
    lengths = [rng.randint(0, int(6000 * scale)) for _ in range(37)]
    for dtype in (torch.bfloat16, torch.float16):
        for call in ("drop_in", "invariant"):
            options = {"dtype": dtype, "call": call, "device": device}
            for case in (
                Case(lengths, 128, **options),
                Case(lengths, 128, 2, causal=True, **options),
                Case([int(16384 * scale)], 16, **options),
                Case([int(16384 * scale)], 128, **options),
                # The same without pairs of CTAs; without part-filled pages; pieces of one key tile.
                Case(lengths, 16, **options),
                Case(lengths, 64, **options),
                Case([n // 64 * 64 for n in lengths], 128, **options),
                Case([64] * int(200 * scale), 128, **options),
            ):
                section.check(f"{times} repeats, {case}", lambda case=case: repeats(case, times))
    section.progress("repeats")
    sizes = (2, 8) if small else (2, 8, 64, 321)
    for h_q, s_q in ((128, 1), (64, 1), (16, 1), (12, 2), (128, 2)):
        for length in (0, 1, 63, 64, 1000, 4097, 20000):
            length = int(length * scale) if small else length
            dtype = torch.bfloat16 if (h_q + length) % 2 else torch.float16
            section.check(
                f"batch_invariant h_q {h_q} s_q {s_q} length {length}",
                lambda h=h_q, s=s_q, n=length, d=dtype: invariant(h, s, n, d, device, sizes, int(3000 * scale)),
            )
    section.progress("batch_invariant")
