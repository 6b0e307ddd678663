"""The decoding simulator: what caching one latent vector a token saves, and that absorbing gives the same numbers."""

from __future__ import annotations

from typing import Any

from flashmla import _core
from flashmla._arguments import integer


class FlashMLADecodingSimulator:
    """One decode step of an MLA model, in fp32 on the CPU, with the cache traffic of multi-head attention beside it.

    Arguments: num_heads, head_dim (of an unabsorbed head, without its rotary part), latent_dim (kv_lora_rank), rope_dim,
    page_block_size (tokens a cache page). `seed` fixes the data; `num_threads` (0 = all) never changes the numbers.
    """

    def __init__(
        self,
        num_heads: int = 128,
        head_dim: int = 128,
        latent_dim: int = 512,
        rope_dim: int = 64,
        page_block_size: int = 64,
        *,
        seed: int = 0,
        num_threads: int = 0,
    ) -> None:
        self.num_heads = integer("num_heads", num_heads)
        self.head_dim = integer("head_dim", head_dim)
        self.latent_dim = integer("latent_dim", latent_dim)
        self.rope_dim = integer("rope_dim", rope_dim)
        self.page_block_size = integer("page_block_size", page_block_size)
        self.seed = integer("seed", seed)
        self.num_threads = integer("num_threads", num_threads)

    def simulate_decoding_step(self, batch_size: int, context_len: int) -> dict[str, Any]:
        """Runs one decode step both ways, expanding keys and values and absorbing the projections, and compares.

        Arguments:
            batch_size: requests.
            context_len: cached tokens of each.

        Returns:
            A dictionary: batch_size, context_len, total_tokens_evaluated; mha_memory_mb and flashmla_memory_mb, the MiB read by
            full multi-head attention (2 * heads * head_dim 16-bit values a token) and by the latent form (latent + rope);
            memory_reduction_ratio; numerical_max_error, the largest difference of an output element between the two ways;
            mathematical_parity, whether that is below 1e-5.

        Raises:
            ValueError: sizes that make no sense.
        """
        return _core.simulate_decoding_step(
            self.num_heads,
            self.head_dim,
            self.latent_dim,
            self.rope_dim,
            self.page_block_size,
            integer("batch_size", batch_size),
            integer("context_len", context_len),
            self.seed,
            self.num_threads,
        )
