"""What this build and this machine can do, and which kernel a shape would get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from flashmla import _core
from flashmla._arguments import integer, plan_options


def info() -> dict[str, Any]:
    """Version and build facts (git revision, compiler, toolkit, architectures, CPU paths), kernels, and this machine's devices.

    Returns:
        A dictionary with the keys version, git_revision, source_hash, compiler, cuda_toolkit, cuda_architectures, cpu_paths;
        kernels, as `kernels()` gives them; devices, one of dictionaries with name, type, index, arch, compute_capability,
        num_processors, smem_per_block_bytes, l2_bytes, memory_gbps (GB/s) and matrix_tflops (0 where not known).
    """
    facts: dict[str, Any] = dict(_core.build_info())
    facts["kernels"] = kernels()
    names = ["cpu"] + [f"cuda:{index}" for index in range(_core.cuda_device_count())]
    facts["devices"] = [_core.device_info(name) for name in names]
    return facts


def kernels() -> list[dict[str, Any]]:
    """The catalogue of kernels, the rows that plans choose from.

    Returns:
        Dictionaries with name; operation; cache_formats (empty where no cache is read); sparse, whether decode goes by indices;
        attn_sink, whether a sink may be given; dtypes; dims, pairs (d_qk, d_v), empty for any; page_size in tokens, 0 for any;
        device ("cpu" or "cuda") and compute_capability, 0 for any; summary; built, whether this build has the kernel.
    """
    return _core.kernels()


def plan(
    b: int,
    *,
    max_pages: int = 0,
    s_q: int = 1,
    h_q: int = 128,
    h_kv: int = 1,
    d_qk: int = 576,
    d_v: int = 512,
    page_size: int = 64,
    dtype: str = "bfloat16",
    format: str = "",
    causal: bool = False,
    topk: int = 0,
    extra_topk: int = 0,
    extra_page_size: int = 0,
    attn_sink: bool = False,
    device: str = "cpu",
    batch_invariant: bool = False,
    kernel: str = "",
    num_workers: int = 0,
) -> _core.DecodePlan:
    """The plan that `decode` would follow for these shapes: kernel, reason, verdict on every other kernel, workspace.

    Arguments:
        b, s_q, h_q, h_kv, d_qk, d_v, page_size: sizes as in `decode`; page_size in tokens.
        max_pages: width of the block table; 0 in a sparse call.
        dtype: of q: "bfloat16", "float16" or "float8_e4m3fn".
        format: of the cache, as in `empty_cache`; "" is the 16-bit one of dtype.
        causal: as in `decode`.
        topk: indices a query token in a sparse call; 0 plans a dense one.
        extra_topk, extra_page_size: indices into a second cache, and its tokens a page; 0 without one.
        attn_sink: whether a sink is given.
        device: "cpu", "cuda", "cuda:1", or the name of a reference description ("h200", "h100"), which plans for that hardware
            without having it.
        batch_invariant, kernel, num_workers: as in `decode`.

    Returns:
        A `DecodePlan`: its workspace_bytes are bytes.

    Raises:
        ValueError: shapes that no kernel accepts.
        NotImplementedError: no kernel of this build fits the device.
    """
    sizes = dict(
        b=b, s_q=s_q, h_q=h_q, h_kv=h_kv, d_qk=d_qk, d_v=d_v, page_size=page_size, max_pages=max_pages, topk=topk,
        extra_topk=extra_topk, extra_page_size=extra_page_size,
    )
    options = plan_options(batch_invariant, kernel, num_workers)
    return _core.plan(_integers(sizes), str(dtype), str(format), bool(causal), bool(attn_sink), str(device), options)


def plan_prefill(
    operation: str = "dense_prefill",
    *,
    total_q: int,
    total_kv: int,
    b: int = 1,
    max_seqlen_q: int | None = None,
    max_seqlen_kv: int | None = None,
    h_q: int = 128,
    h_kv: int | None = None,
    d_qk: int | None = None,
    d_v: int | None = None,
    topk: int = 0,
    dtype: str = "bfloat16",
    causal: bool = False,
    device: str = "cpu",
    batch_invariant: bool = False,
    kernel: str = "",
    num_workers: int = 0,
) -> _core.PrefillPlan:
    """The plan that `sparse_prefill`, `dense_prefill` or `dense_prefill_backward` would follow for these shapes.

    Arguments:
        operation: the function's name.
        total_q, total_kv: query tokens and key tokens of all requests together.
        b: requests.
        max_seqlen_q, max_seqlen_kv: bounds of a request's lengths in tokens; None means the totals.
        h_q: query heads.
        h_kv: key heads; None means 1 in sparse prefill, h_q otherwise.
        d_qk, d_v: values a query and a value; None means 576 and 512 in sparse prefill, 192 and 128 otherwise.
        topk: indices a query token, sparse prefill only.
        dtype: of q: "bfloat16" or "float16".
        causal: as in `dense_prefill`.
        device, batch_invariant, kernel, num_workers: as in `plan`.

    Returns:
        A `PrefillPlan`: its workspace_bytes are bytes.

    Raises:
        ValueError: shapes that no kernel accepts.
        NotImplementedError: no kernel of this build fits the device.
    """
    sparse = operation == "sparse_prefill"
    sizes = dict(
        b=b,
        total_q=total_q,
        total_kv=total_kv,
        max_seqlen_q=total_q if max_seqlen_q is None else max_seqlen_q,
        max_seqlen_kv=total_kv if max_seqlen_kv is None else max_seqlen_kv,
        h_q=h_q,
        h_kv=(1 if sparse else h_q) if h_kv is None else h_kv,
        d_qk=(576 if sparse else 192) if d_qk is None else d_qk,
        d_v=(512 if sparse else 128) if d_v is None else d_v,
        topk=topk,
    )
    options = plan_options(batch_invariant, kernel, num_workers)
    return _core.plan_prefill(str(operation), _integers(sizes), str(dtype), bool(causal), str(device), options)


def _integers(sizes: dict[str, Any]) -> dict[str, int]:
    return {name: integer(name, value) for name, value in sizes.items()}


@dataclass(frozen=True)
class Capability:
    """The answer of `capability`: true or false as a condition, with the reason and, where a plan chose one, the kernel."""

    supported: bool
    reason: str
    kernel: str = ""

    def __bool__(self) -> bool:
        return self.supported


def capability(operation: str = "decode", *, device: str = "cpu", **dims: Any) -> Capability:
    """Whether this build can run an operation on a device, or the reason why not; raises nothing for a "no".

    Arguments:
        operation: "decode", "sparse_prefill", "dense_prefill", "dense_prefill_backward", "append", "gather", "copy_pages",
            "convert", "merge" or "absorb".
        device: as in `plan`.
        dims: for decode the keyword arguments of `plan` (dtype, format, h_q, topk, ...), for prefill those of `plan_prefill`,
            for the others dtype and format. What is left out takes the value of DeepSeek-V3 at one request.

    Returns:
        A `Capability`.

    Raises:
        TypeError: dims that the operation does not have.
    """
    try:
        if operation in _PLANNED:
            found = _PLANNED[operation](device, dims)
        else:
            _core.check_capability(operation, device, **{"dtype": "bfloat16", "format": "bf16", **dims})
            return Capability(True, f"{operation} runs on {device}")
    except (ValueError, NotImplementedError) as error:
        return Capability(False, str(error))
    if not next(kernel["built"] for kernel in _core.kernels() if kernel["name"] == found.kernel):
        return Capability(False, f"{found.kernel} fits, but this build of flashmla was made without it")
    return Capability(True, found.reason, found.kernel)


def _prefill_plan(operation: str, device: str, dims: dict[str, Any]) -> _core.PrefillPlan:
    sparse = {"topk": 1} if operation == "sparse_prefill" else {}
    return plan_prefill(operation, device=device, **{"total_q": 1, "total_kv": 1, **sparse, **dims})


_PLANNED: dict[str, Callable[[str, dict[str, Any]], _core.DecodePlan | _core.PrefillPlan]] = {
    "decode": lambda device, dims: plan(device=device, **{"b": 1, "max_pages": 0 if "topk" in dims else 1, **dims}),
    "sparse_prefill": partial(_prefill_plan, "sparse_prefill"),
    "dense_prefill": partial(_prefill_plan, "dense_prefill"),
    "dense_prefill_backward": partial(_prefill_plan, "dense_prefill_backward"),
}
