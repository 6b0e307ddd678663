"""The flash_mla interface on torch tensors: CUDA tensors run on the GPU kernels of libflashmla, CPU tensors on its CPU kernels.

Existing callers of the flash_mla package run unmodified. What this build does not do yet raises NotImplementedError.
"""

from flash_mla.flash_mla_interface import (
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_mla_sparse_fwd,
    flash_mla_with_kvcache,
    flash_mla_with_kvcache_fp8,
    get_mla_metadata,
    get_mla_metadata_dense_fp8,
    set_batch_invariant,
)
from flashmla import __version__

__all__ = [
    "__version__",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_mla_sparse_fwd",
    "flash_mla_with_kvcache",
    "flash_mla_with_kvcache_fp8",
    "get_mla_metadata",
    "get_mla_metadata_dense_fp8",
    "set_batch_invariant",
]
