"""Stand-in: the newer home of the functions; needs a package that is not there."""

from flash_mla import fused_norm_rope_attn_rope_cast  # noqa: F401
