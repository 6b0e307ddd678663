"""What this build and this machine can do, and which kernel a shape would get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flashmla import _core


def info() -> dict[str, Any]:
    """Version and build facts (git revision, compiler, toolkit, architectures, CPU paths) and the devices of this machine.

    Keys: version, git_revision, source_hash, compiler, cuda_toolkit, cuda_architectures, cpu_paths; kernels, a list of
    dictionaries with name, operation, cache_formats, summary and built (whether this build has it); devices, one of
    dictionaries with name, type, index, arch, compute_capability, num_processors, smem_per_block_bytes, l2_bytes,
    memory_gbps and matrix_tflops (0 where not known).
    """
    facts: dict[str, Any] = dict(_core.build_info())
    facts["kernels"] = _core.kernels()
    names = ["cpu"] + [f"cuda:{index}" for index in range(_core.cuda_device_count())]
    facts["devices"] = [_core.device_info(name) for name in names]
    return facts


def plan(
    b: int,
    *,
    max_pages: int,
    s_q: int = 1,
    h_q: int = 128,
    h_kv: int = 1,
    d_qk: int = 576,
    d_v: int = 512,
    page_size: int = 64,
    dtype: str = "bfloat16",
    causal: bool = False,
    device: str = "cpu",
    batch_invariant: bool = False,
    kernel: str = "",
    num_workers: int = 0,
) -> _core.DecodePlan:
    """The plan that `decode` would follow for these shapes: kernel, reason, verdict on every other kernel, workspace.

    Arguments are decode's; max_pages is the width of the block table. `device` is "cpu", "cuda", "cuda:1", or the name of a
    reference description ("h200", "h100"), which plans for that hardware without having it.

    Raises ValueError for shapes that no kernel accepts, NotImplementedError when none of this build fits the device.
    """
    return _core.plan(
        b, s_q, h_q, h_kv, d_qk, d_v, page_size, max_pages, dtype, causal, device, batch_invariant, kernel, num_workers
    )


@dataclass(frozen=True)
class Capability:
    """The answer of `capability`: true or false as a condition, with the reason and, when true, the kernel."""

    supported: bool
    reason: str
    kernel: str = ""

    def __bool__(self) -> bool:
        return self.supported


def capability(operation: str = "decode", *, device: str = "cpu", **dims: Any) -> Capability:
    """Whether this build can run an operation on a device, or the reason why not; raises nothing for a "no".

    `dims` are the keyword arguments of `plan` (dtype, h_q, h_kv, s_q, d_qk, d_v, page_size, ...); what is left out takes
    the value of DeepSeek-V3 at one request.
    """
    if operation != "decode":
        return Capability(False, f"operation: got {operation!r}, this build has 'decode'")
    dims = {"b": 1, "max_pages": 1, **dims}
    try:
        found = plan(device=device, **dims)
    except (ValueError, NotImplementedError) as error:
        return Capability(False, str(error))
    if not next(kernel["built"] for kernel in _core.kernels() if kernel["name"] == found.kernel):
        return Capability(False, f"{found.kernel} fits, but this build of flashmla was made without it")
    return Capability(True, found.reason, found.kernel)
