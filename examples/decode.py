"""One MLA decode step on NumPy arrays: three requests of different lengths over a paged cache, checked against plain NumPy.

    python examples/decode.py
"""

import ml_dtypes
import numpy as np

import flashmla

HEADS, LATENT, ROPE, PAGE = 16, 512, 64, 64
lengths = np.array([450, 64, 1100], np.int32)

# The cache is a pool of pages; the block table says which pages belong to a request, in order. Any order will do.
random = np.random.default_rng(0)
pages_needed = -(-lengths // PAGE)
pool = random.standard_normal((pages_needed.sum(), PAGE, 1, LATENT + ROPE)).astype(ml_dtypes.bfloat16)
block_table = np.zeros((len(lengths), pages_needed.max()), np.int32)
free_pages = list(random.permutation(len(pool)))
for request, count in enumerate(pages_needed):
    block_table[request, :count] = [free_pages.pop() for _ in range(count)]

# One new token a request. The scale belongs to the unabsorbed head: 128 values and 64 rotary ones.
q = random.standard_normal((len(lengths), 1, HEADS, LATENT + ROPE)).astype(ml_dtypes.bfloat16)
scale = (128 + ROPE) ** -0.5
out, lse = flashmla.decode(q, pool, block_table, lengths, d_v=LATENT, softmax_scale=scale)
print(f"out {out.shape} {out.dtype}, lse {lse.shape} {lse.dtype}")

worst = 0.0
for request, length in enumerate(lengths):
    keys = pool[block_table[request]].reshape(-1, LATENT + ROPE)[:length].astype(np.float64)
    scores = scale * q[request, 0].astype(np.float64) @ keys.T
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = weights @ keys[:, :LATENT] / weights.sum(axis=1, keepdims=True)
    worst = max(worst, np.abs(expected - out[request, 0].astype(np.float64)).max())
print(f"largest difference from float64: {worst:.1e}")
assert worst < 0.02
