"""Stand-in: the kernel package hands its functions on at the top level."""

from sgl_kernel.flash_mla import flash_mla_sparse_fwd, flash_mla_with_kvcache, get_mla_metadata  # noqa: F401
