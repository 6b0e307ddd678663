"""Dense decode against float64: what the suite runs."""

import random
import time

import oracle
import torch
from cases import Case

DTYPES = (torch.bfloat16, torch.float16)
STDS = (0.01, 1.0, 8.0, 50.0)
KEYS = ("random", "rising", "last")
CALLS = ("drop_in", "drop_in", "native", "cumulative", "invariant")
HEADS = (1, 2, 3, 8, 9, 12, 16, 20, 32, 48, 63, 64, 65, 96, 126, 127, 128)


class Checker:
    def __init__(self, section, device):
        self.section, self.device = section, device
        self.worst = {"share": 0.0, "case": ""}
        self.lse_rms = 0.0
        self.slowest = {"seconds": 0.0, "case": ""}

    def __call__(self, case, prepare=None):
        case.device = self.device
        self.section.check(case, lambda: self.run(case, prepare))

    def run(self, case, prepare=None):
        start = time.perf_counter()
        case.build()
        if prepare:
            prepare(case)
        try:
            out, lse = case.run()
        except NotImplementedError as error:
            if case.page == 64:
                raise
            self.section.refused += 1  # other page sizes may be refused, by name
            return None if "page" in str(error) else f"refused without naming the page size: {error}"
        complaint, _, share, lse_rms = oracle.compare(case, out, lse)
        self.lse_rms = max(self.lse_rms, lse_rms)
        if share > self.worst["share"]:
            self.worst.update(share=round(share, 3), case=str(case))
        seconds = time.perf_counter() - start
        if seconds > self.slowest["seconds"]:
            self.slowest.update(seconds=round(seconds, 2), case=str(case))
        return complaint


def ragged(rng, b, most):
    """Lengths of a batch: some empty, some around tile edges, some long."""
    kinds = (
        lambda: rng.randint(0, most),
        lambda: rng.randint(0, min(most, 300)),
        lambda: min(most, max(0, 64 * rng.randint(0, 20) + rng.randint(-1, 1))),
        lambda: 0,
    )
    return [rng.choices(kinds, (6, 3, 2, 1))[0]() for _ in range(b)]


def random_case(seed, most):
    rng = random.Random(seed)
    h_kv = rng.choice((1, 1, 1, 1, 2, 3, 8))
    h_q = rng.choice(HEADS) if h_kv == 1 else h_kv * rng.choice((1, 2, 4, 16))
    s_q = rng.choice((1, 1, 1, 2, 2, 3, 4, 5, 16, 128))
    b = rng.randint(1, 40)
    if s_q > 5:
        b, most = min(b, 4), min(most, 2000)
    if h_kv > 1:
        b, most = min(b, 12), min(most, 3000)
    return Case(
        ragged(rng, b, most), h_q, s_q, h_kv, rng.random() < 0.5, rng.choice(DTYPES), rng.choice(STDS), rng.choice(KEYS),
        layers=rng.choice((1, 1, 3)), tables=rng.choice(("permuted", "permuted", "reversed", "shared")) if b > 1 else "permuted",
        wide_q=rng.random() < 0.2, own_scale=rng.random() < 0.3, call=rng.choice(CALLS), seed=seed,
    )  # fmt: skip


def head_counts():
    for h in range(1, 129):
        for i in range(2):
            rng = random.Random(2 * h + i)
            yield Case(
                ragged(rng, 7, 1500), h, 1 + (h + i) % 2, causal=bool((h // 2) % 2), dtype=DTYPES[i],
                std=STDS[h % 4], keys=KEYS[(h + i) % 3], call=CALLS[h % 5], layers=1 + 2 * (h % 2), seed=h,
            )  # fmt: skip


def all_lengths(most=300):
    lengths = list(range(most + 1))
    for h in (128, 64, 16):
        for dtype in DTYPES:
            for s_q, causal in ((1, False), (2, True), (3, False)):
                for std, keys in ((1.0, "random"), (8.0, "rising"), (1.0, "last")):
                    yield Case(lengths, h, s_q, causal=causal, dtype=dtype, std=std, keys=keys, seed=h)


def field_cases(scale=1.0):
    """Numbers of inputs that broke kernels in public."""

    def n(x):
        return max(1, int(x * scale))

    uneven = random.Random(17)
    for causal in (False, True):
        yield Case([0] * 16, 16, causal=causal), None  # 1: no page at all
        yield Case([0, 5, 0, 64], 16, causal=causal), None
        yield Case([0, 1, 2, 3, 64, 70], 16, 2, causal=causal), None  # 3
        yield Case([0, 1, 3, 5, 64, 65], 128, 4, causal=causal), None  # 4: s_q past the length
        yield Case([], 16, causal=causal), None  # 9
    yield Case([100] + [0] * 1023, 128), None  # 2
    for value in (float("nan"), float("inf"), float("-inf")):  # 11
        yield Case([13, 1, 63, 65, 0], 128, poison=value), None
        yield Case([13, 1, 63, 65, 0], 16, poison=value), None
    yield Case([70] * 3, 64), None  # 13: table rows end in 2147480000 and -1
    for h in (128, 16):
        yield Case([uneven.randint(1, n(5000)) for _ in range(300)], h), None  # 17
    for length in range(16, n(4000) + 1, 256):  # 18: every number of splits
        yield Case([length], 16), None
        yield Case([length + 48, 5], 128), None
    yield Case([100, 64, 1000], 64), lambda case: case.q[:, :, 8:].fill_(float("nan"))  # 20
    yield Case([100, 64, 1000], 128, 2), lambda case: case.q[1, 1, 77, 3:4].fill_(float("nan"))
    yield Case([64], 128, n(4096)), None  # 33
    yield Case([1] * n(65600), 1), None
    for h in (8, 128):  # 36
        yield Case(list(range(1, 201)), h, 2, causal=True), None
    yield Case([n(32768)] * n(128), 8, 2, causal=True), None
    for tables in ("reversed", "shared", "permuted"):  # 46
        yield Case([700, 3, 650, 64], 64, tables=tables), None
    for length in (131071, 131072, 131073):  # 47
        for h in (16, 128):
            yield Case([n(length)], h), None
    for s_q in (3, 5, 64, 127, 128):  # 49
        for h in (16, 128):
            yield Case([200, 64, 1, 0, 131], h, s_q, causal=True), None
    for h in (16, 64, 128):
        yield Case([8000, 70, 1], h, layers=8), None  # 50
        yield Case([300, 70, 1], h, 2, wide_q=True), None  # 51
    for page in (1, 2, 16, 32, 61, 69, 128, 256):  # 45: right, or refused by name
        yield Case([300, 70, 1], 16, page=page), None
    yield Case([n(8192)] * 128, 128), None
    yield Case([n(8192)] * 128, 64, dtype=torch.float16), None


def against_torch(section, device, scale=1.0):
    """The Frobenius-relative error is at most 1.2 times that of torch's own computation in the dtype with fp32 softmax."""
    section.facts["relative_error_of_us_and_torch"] = ratios = {}
    for h, length, s_q in ((128, 8192, 1), (64, 4096, 2), (16, 32768, 1), (128, 700, 1)):
        for dtype in DTYPES:
            for std, keys in ((1.0, "random"), (8.0, "random"), (0.01, "random"), (8.0, "rising")):
                case = Case([int(length * scale)] * 4, h, s_q, dtype=dtype, std=std, keys=keys, seed=5, device=device)

                def compare(case=case):
                    case.build()
                    out, lse = case.run()
                    theirs, their_lse = torch.empty_like(out), lse
                    for i, n in enumerate(case.lengths):
                        k = case.k_cache[case.block_table[i, : -(-n // 64)].long()].reshape(-1, 576)[:n]
                        scores = torch.softmax((case.q[i] @ k.T).float() * case.scale, -1)
                        theirs[i] = scores.to(case.dtype) @ k[:, :512]
                    ours, other = oracle.compare(case, out, lse)[1], oracle.compare(case, theirs, their_lse)[1]
                    ratios[str(case)] = [float(f"{ours:.3g}"), float(f"{other:.3g}")]
                    return None if ours <= 1.2 * other else f"relative error {ours:.3g}, torch's {other:.3g}"

                section.check(f"{case} against torch", compare)


def short_selection():
    """Sees every planted fault."""
    for dtype in DTYPES:
        for h in (128, 64, 16):
            for keys, std in (("rising", 8.0), ("random", 1.0), ("last", 1.0)):
                yield Case([13, 700, 65, 64, 3000], h, dtype=dtype, keys=keys, std=std, layers=3)
            yield Case([13, 7, 65, 64, 300], h, 2, causal=True, dtype=dtype)
            yield Case([9000], h, dtype=dtype, keys="rising")


def run(section, device, short=False, small=False):
    checker = Checker(section, device)
    if short:
        for case in short_selection():
            checker(case)
        section.progress("short selection")
        return
    scale = 0.02 if small else 1.0
    for name, cases in (
        ("field cases", field_cases(scale)),
        ("head counts", ((case, None) for case in head_counts())),
        ("lengths 0 to 300", ((case, None) for case in all_lengths(70 if small else 300))),
        ("random batches", ((random_case(seed, 200 if small else 6000), None) for seed in range(20 if small else 320))),
    ):
        for i, (case, prepare) in enumerate(cases):
            if small and i % 8 and name in ("head counts", "lengths 0 to 300"):
                continue
            checker(case, prepare)
        section.progress(name)
    against_torch(section, device, scale)
    section.progress("against torch")
    section.facts.update(largest_share_of_the_bound=checker.worst, slowest=checker.slowest)
    section.facts.update(largest_lse_rms=round(checker.lse_rms, 4))
