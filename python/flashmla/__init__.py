"""MLA attention kernels for CUDA GPUs and CPUs, on arrays of any framework that speaks DLPack or the buffer protocol.

NumPy (with ml_dtypes for bfloat16), torch, CuPy and JAX arrays all work, and none of these packages is imported here: torch comes
with the first use of flashmla.MLA, the torch module.
Errors are ValueError for arguments an operation never accepts, NotImplementedError for what this build or device cannot do,
MemoryError, and RuntimeError when the device fails; nothing is written before all checks have passed.
"""

from typing import TYPE_CHECKING, Any

from flashmla._absorb import absorb_query, project_output
from flashmla._cache import append, convert, copy_pages, empty_cache, gather
from flashmla._core import DecodePlan, PrefillPlan
from flashmla._decode import decode
from flashmla._dense_prefill import dense_prefill, dense_prefill_backward
from flashmla._info import Capability, capability, info, kernels, plan, plan_prefill
from flashmla._merge import merge
from flashmla._simulator import FlashMLADecodingSimulator
from flashmla._sparse_prefill import sparse_prefill

if TYPE_CHECKING:
    from flashmla._mla import MLA as MLA

__version__: str = info()["version"]

__all__ = [
    "Capability",
    "DecodePlan",
    "FlashMLADecodingSimulator",
    "PrefillPlan",
    "absorb_query",
    "append",
    "capability",
    "convert",
    "copy_pages",
    "decode",
    "dense_prefill",
    "dense_prefill_backward",
    "empty_cache",
    "gather",
    "info",
    "kernels",
    "merge",
    "plan",
    "plan_prefill",
    "project_output",
    "sparse_prefill",
]


def __getattr__(name: str) -> Any:
    if name != "MLA":
        raise AttributeError(f"module 'flashmla' has no attribute {name!r}")
    from flashmla._mla import MLA

    return MLA


def __dir__() -> list[str]:
    return sorted([*globals(), "MLA"])
