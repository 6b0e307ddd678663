"""A few decode steps over an fp8 cache: append each step's token, attend, and compare with the same steps over a bf16 cache.

    python examples/fp8_cache.py
"""

import ml_dtypes
import numpy as np

import flashmla

REQUESTS, HEADS, LATENT, ROPE, PAGE, PAGES_EACH, PROMPT, STEPS = 3, 16, 512, 64, 64, 4, (130, 60, 7), 8
SCALE = (128 + ROPE) ** -0.5
random = np.random.default_rng(0)


def tokens(count):
    """Latents and rotary parts of new tokens, as a model's projections make them."""
    return (random.standard_normal((count, width)).astype(ml_dtypes.bfloat16) for width in (LATENT, ROPE))


def slots(request, positions):
    """Where a request's tokens live: page * PAGE + offset."""
    return block_table[request, positions // PAGE].astype(np.int64) * PAGE + positions % PAGE


# Pages of the pool in any order; each request has room for PAGES_EACH * PAGE tokens.
block_table = random.permutation(REQUESTS * PAGES_EACH).reshape(REQUESTS, PAGES_EACH).astype(np.int32)
caches = {format: flashmla.empty_cache(REQUESTS * PAGES_EACH, PAGE, format=format) for format in ("fp8_656", "bf16")}
for format, cache in caches.items():
    print(f"{format}: {cache.shape} {cache.dtype}, {cache.nbytes / 2**20:.1f} MiB")

# Angles of the rotary embedding; append rotates each token's rotary part by its position.
angles = np.arange(PAGES_EACH * PAGE)[:, None] * 10000.0 ** (-np.arange(ROPE // 2) / (ROPE // 2))
cos_sin = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def append(latent, rope, slot_ids, positions):
    for cache in caches.values():
        flashmla.append(latent, rope, cache, slot_ids, positions=positions, cos_sin=cos_sin)


for request, length in enumerate(PROMPT):
    append(*tokens(length), slots(request, np.arange(length)), np.arange(length))

lengths = np.array(PROMPT, np.int32)
worst = 0.0
for _ in range(STEPS):
    append(*tokens(REQUESTS), np.concatenate([slots(i, lengths[i : i + 1]) for i in range(REQUESTS)]), lengths)
    lengths += 1
    q = random.standard_normal((REQUESTS, 1, HEADS, LATENT + ROPE)).astype(ml_dtypes.bfloat16)
    fp8, wide = (flashmla.decode(q, cache, block_table, lengths, softmax_scale=SCALE)[0] for cache in caches.values())
    difference = fp8.astype(np.float32) - wide.astype(np.float32)
    worst = max(worst, np.linalg.norm(difference) / np.linalg.norm(wide.astype(np.float32)))

print(f"lengths {lengths.tolist()}; fp8 differs from bf16 by {worst:.1%} of the output's norm at most")
assert worst < 0.1
