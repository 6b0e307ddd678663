"""A two-layer model of DeepSeek's layout: low-rank latents with a shared rotary key, a gated MLP, seeded weights of about 3 MB.

Everything between the attentions is float32 arithmetic on weights rounded to the model's 16-bit dtype, so that two ways of computing
attention are all that two runs can differ in.
"""

from dataclasses import dataclass

import torch

import flashmla

VOCABULARY, HIDDEN, HEADS, HEAD_DIM, ROPE, LAYERS = 256, 192, 4, 32, 64, 2
PAGE = 16


def normalized(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def rotated(x, positions):
    """Rotary embedding on neighboring pairs of the last axis; positions (b, s), x (b, s, [h,] d)."""
    angles = positions[..., None] * 10000.0 ** -(torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    if x.dim() == 4:
        angles = angles[:, :, None]
    turns = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous()) * turns).flatten(-2)


class Layer(torch.nn.Module):
    def __init__(self, rank, dtype, use_fp8, random):
        super().__init__()
        self.attention = flashmla.MLA(HEADS, HEAD_DIM, rank, ROPE, use_fp8, dtype=dtype)

        def weight(rows, columns):
            return (torch.randn(rows, columns, generator=random) * rows**-0.5).to(dtype).float()

        with torch.no_grad():
            for w in (self.attention.W_UK, self.attention.W_UV):
                w.copy_(torch.randn(w.shape, generator=random) * rank**-0.5)
        self.query, self.down = weight(HIDDEN, HEADS * (HEAD_DIM + ROPE)), weight(HIDDEN, rank + ROPE)
        self.output = weight(HEADS * HEAD_DIM, HIDDEN)
        self.gate, self.up, self.back = weight(HIDDEN, 2 * HIDDEN), weight(HIDDEN, 2 * HIDDEN), weight(2 * HIDDEN, HIDDEN)
        self.rank, self.dtype = rank, dtype

    def forward(self, x, positions, attend):
        """`attend(self, q_nope, q_rope, latent, rope)` gets 16-bit tensors and gives (b, s, heads, head_dim)."""
        h = normalized(x)
        q = (h @ self.query).view(*x.shape[:2], HEADS, HEAD_DIM + ROPE)
        latent, rope = (h @ self.down).split([self.rank, ROPE], dim=-1)
        parts = q[..., :HEAD_DIM], rotated(q[..., HEAD_DIM:], positions), normalized(latent), rotated(rope, positions)
        attended = attend(self, *(part.to(self.dtype) for part in parts))
        x = x + attended.float().flatten(2) @ self.output
        h = normalized(x)
        return x + (torch.nn.functional.silu(h @ self.gate) * (h @ self.up)) @ self.back


class Model(torch.nn.Module):
    def __init__(self, *, rank=512, dtype=torch.bfloat16, use_fp8=False, seed=0):
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.embedding = torch.randn(VOCABULARY, HIDDEN, generator=random).to(dtype).float()
        self.head = (torch.randn(HIDDEN, VOCABULARY, generator=random) * HIDDEN**-0.5).to(dtype).float()
        self.layers = torch.nn.ModuleList(Layer(rank, dtype, use_fp8, random) for _ in range(LAYERS))

    def forward(self, tokens, positions, attends):
        x = self.embedding[tokens]
        for layer, attend in zip(self.layers, attends, strict=True):
            x = layer(x, positions, attend)
        return normalized(x) @ self.head


def recompute(layer, q_nope, q_rope, latent, rope):
    """Attention without a cache: keys and values expanded for every head, causal, in float32."""
    w_uk, w_uv = layer.attention.W_UK.detach().float(), layer.attention.W_UV.detach().float()
    keys = torch.einsum("bnr,hdr->bhnd", latent.float(), w_uk)
    values = torch.einsum("bnr,hdr->bhnd", latent.float(), w_uv)
    scores = torch.einsum("bshd,bhnd->bhsn", q_nope.float(), keys)
    scores = scores + torch.einsum("bshd,bnd->bhsn", q_rope.float(), rope.float())
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    weights = (layer.attention.softmax_scale * scores).masked_fill(hidden, -torch.inf).softmax(-1)
    return torch.einsum("bhsn,bhnd->bshd", weights, values)


@dataclass
class Cached:
    """Attention over caches: one a layer, tokens of each request on shuffled pages that all layers share."""

    model: Model
    max_tokens: int
    requests: int

    def __post_init__(self):
        pages = -(-self.max_tokens // PAGE)
        self.caches = [layer.attention.new_cache(pages * self.requests, PAGE) for layer in self.model.layers]
        for cache in self.caches:
            cache.pages.untyped_storage().fill_(255)
        order = torch.randperm(pages * self.requests, generator=torch.Generator().manual_seed(1))
        self.block_table = order.view(self.requests, pages).to(torch.int32)

    def step(self, tokens, rows, start):
        """Logits of tokens (len(rows), s), the tokens `start` (len(rows),) and following of these requests; appends them."""
        s = tokens.shape[1]
        positions = start[:, None] + torch.arange(s)
        table = self.block_table[rows].contiguous()
        slots = (table.gather(1, positions // PAGE) * PAGE + positions % PAGE).to(torch.int32)
        lengths = (start + s).to(torch.int32)

        def over(cache):
            def attend(layer, q_nope, q_rope, latent, rope):
                cache.append(latent, rope, slots)
                return layer.attention(q_nope, q_rope, cache=cache, block_table=table, cache_seqlens=lengths)

            return attend

        return self.model(tokens, positions, [over(cache) for cache in self.caches])


def recomputed_logits(model, tokens):
    """(n, vocabulary) for one request's tokens (n,)."""
    with torch.no_grad():
        return model(tokens[None], torch.arange(len(tokens))[None], [recompute] * LAYERS)[0]


def generate_by_recomputing(model, prompts, new_tokens):
    """Every step computes the whole sequence again. Sequences, and the logits of every generated token."""
    sequences, logits = [], []
    for prompt in prompts:
        tokens, seen = prompt, []
        for _ in range(new_tokens):
            seen.append(recomputed_logits(model, tokens)[-1])
            tokens = torch.cat([tokens, seen[-1].argmax()[None]])
        sequences.append(tokens)
        logits.append(torch.stack(seen))
    return sequences, torch.stack(logits)


def generate_with_cache(model, prompts, new_tokens, forced=None):
    """Prompts one by one, each in one call; then one decode step a token for all requests together.

    With `forced` sequences the model reads these instead of what it chose. Sequences and logits as above.
    """
    requests = len(prompts)
    cached = Cached(model, max(map(len, prompts)) + new_tokens, requests)
    with torch.no_grad():
        last = torch.stack(
            [cached.step(p[None], torch.tensor([i]), torch.tensor([0]))[0, -1] for i, p in enumerate(prompts)]
        )
        sequences, logits = list(prompts), [last]
        lengths = torch.tensor([len(p) for p in prompts])
        for t in range(new_tokens):
            chosen = last.argmax(-1) if forced is None else torch.stack([f[n] for f, n in zip(forced, lengths + t, strict=True)])
            sequences = [torch.cat([s, c[None]]) for s, c in zip(sequences, chosen, strict=True)]
            if t + 1 < new_tokens:
                last = cached.step(chosen[:, None], torch.arange(requests), lengths + t)[:, 0]
                logits.append(last)
    return sequences, torch.stack(logits, dim=1)
