"""A few tiny calls for compute-sanitizer: every kernel, dtype, split and tail; compared with nothing but NaN.

smoke.py [cuda|cpu] [native|invariant]: `invariant` splits and merges by a kernel of its own, without the barrier of the whole grid.
"""

import sys

import torch
from cases import Case


def main(device="cuda", call="native"):
    for dtype in (torch.bfloat16, torch.float16):
        for h_q in (128, 64, 16):
            for lengths, s_q in (([0, 70, 300, 64, 1], 1), ([1, 130], 2), ([2000 if call == "native" else 5000], 1)):
                case = Case(lengths, h_q, s_q, causal=s_q > 1, dtype=dtype, layers=2, call=call, device=device).build()
                out, lse = case.run()
                assert out.isfinite().all() and not lse.isnan().any(), str(case)
    print("smoke: all calls returned finite values")


if __name__ == "__main__":
    main(*sys.argv[1:])
