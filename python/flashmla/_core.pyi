# The extension module: thin bindings of libflashmla. Everything here is private to the packages flashmla and flash_mla.
from collections.abc import Sequence
from typing import Any

class _Plan:
    @property
    def kernel(self) -> str:
        """Catalogue name of the kernel."""
    @property
    def reason(self) -> str:
        """Why this kernel, in one sentence."""
    @property
    def verdicts(self) -> list[tuple[str, bool, str]]:
        """Every kernel of the operation: name, whether it was chosen, and why or why not."""
    @property
    def num_workers(self) -> int:
        """Threads on a CPU, thread block clusters on a GPU."""
    @property
    def workspace_bytes(self) -> int:
        """Scratch memory that a run needs; 0 is possible."""
    @property
    def batch_invariant(self) -> bool:
        """Whether a request's bits depend on that request alone."""
    @property
    def device(self) -> dict[str, Any]:
        """The device planned for, with the keys of `flashmla.info()["devices"]`."""

class DecodePlan(_Plan):
    """How `decode` would run a shape: immutable, made by `flashmla.plan`."""

class PrefillPlan(_Plan):
    """How a prefill operation would run a shape: immutable, made by `flashmla.plan_prefill`."""

class HostArray:
    """An array in this library's memory; speaks DLPack and the buffer protocol."""

    def __dlpack__(self, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def host_array(shape: Sequence[int], dtype: str) -> HostArray: ...
def build_info() -> dict[str, str]: ...
def kernels() -> list[dict[str, Any]]: ...
def check_capability(operation: str, device: str, dtype: str, format: str) -> None:
    """Raises the reason why not."""

def cuda_device_count() -> int: ...
def device_info(name: str) -> dict[str, Any]: ...
def plan(
    sizes: dict[str, int],
    dtype: str,
    format: str,
    causal: bool,
    attn_sink: bool,
    device: str,
    options: tuple[bool, str, int],
) -> DecodePlan: ...
def plan_prefill(
    operation: str, sizes: dict[str, int], dtype: str, causal: bool, device: str, options: tuple[bool, str, int]
) -> PrefillPlan: ...
def decode_workspace_bytes(
    q: Any,
    k_cache: Any,
    block_table: Any,
    cache_seqlens: Any,
    cu_seqlens_k: Any,
    out: Any,
    lse: Any,
    d_v: int,
    softmax_scale: float | None,
    causal: bool,
    batch_invariant: bool,
    kernel: str,
    num_workers: int,
    extras: tuple[Any, ...] | None = None,
    /,
) -> int: ...
def decode(
    q: Any,
    k_cache: Any,
    block_table: Any,
    cache_seqlens: Any,
    cu_seqlens_k: Any,
    out: Any,
    lse: Any,
    softmax_scale: float | None,
    causal: bool,
    batch_invariant: bool,
    kernel: str,
    num_workers: int,
    workspace: Any,
    stream: int | None,
    extras: tuple[Any, ...] | None = None,
    /,
) -> None: ...
def decode_torch(
    q: Any,
    k_cache: Any,
    block_table: Any,
    cache_seqlens: Any,
    head_dim_v: int,
    softmax_scale: float | None,
    causal: Any,
    batch_invariant: bool,
    out: Any,
    config: Any,
    allocation: tuple[Any, ...] | None,
    /,
) -> tuple[Any, Any] | None: ...
def sparse_prefill(
    tensors: tuple[Any, ...],
    d_v: int,
    softmax_scale: float | None,
    options: tuple[bool, str, int],
    workspace: Any,
    stream: int | None,
    execute: bool,
    /,
) -> int:
    """tensors: q, kv, indices, topk_length, attn_sink, out, max_logits, lse.

    Returns workspace bytes; without `execute` outputs may be None and nothing runs. So do the next two.
    """

def dense_prefill(
    tensors: tuple[Any, ...],
    max_seqlens: tuple[int | None, int | None],
    softmax_scale: float | None,
    causal: bool,
    options: tuple[bool, str, int],
    workspace: Any,
    stream: int | None,
    execute: bool,
    /,
) -> int:
    """tensors: q, k, v, cu_seqlens_q, cu_seqlens_kv, out, lse."""

def dense_prefill_backward(
    tensors: tuple[Any, ...],
    gradients: tuple[Any, ...],
    max_seqlens: tuple[int | None, int | None],
    softmax_scale: float | None,
    causal: bool,
    options: tuple[bool, str, int],
    workspace: Any,
    stream: int | None,
    execute: bool,
    /,
) -> int:
    """tensors as above; gradients: dout, dlse, dq, dk, dv."""

def cache_record_bytes(format: str, d_qk: int, /) -> int: ...
def cache_page_bytes(format: str, d_qk: int, page_size: int, /) -> int: ...
def values_of_record(argument: str, cache: Any, /) -> int:
    """d_qk of a cache, as its dtype and its record's size tell."""

def append(
    tensors: tuple[Any, ...],
    rotary_halves: bool,
    cache_scale: float,
    power_of_two_scales: bool,
    stream: int | None,
    /,
) -> None:
    """tensors: latent, rope, cache, slot_ids, positions, cos_sin."""

def gather_rows(cache: Any, slot_ids: Any, block_table: Any, cu_seqlens: Any, /) -> int: ...
def gather(
    cache: Any,
    d_qk: int,
    slot_ids: Any,
    block_table: Any,
    cu_seqlens: Any,
    out: Any,
    cache_scale: float,
    stream: int | None,
    /,
) -> None: ...
def copy_pages(source: Any, destination: Any, page_pairs: Any, d_qk: int, stream: int | None, /) -> None: ...
def convert(
    source: Any,
    destination: Any,
    d_qk: int,
    source_scale: float,
    destination_scale: float,
    power_of_two_scales: bool,
    stream: int | None,
    /,
) -> None: ...
def merge(outs: Sequence[Any], lses: Sequence[Any], out: Any, lse: Any, stream: int | None, /) -> None: ...
def absorb_query(x: Any, weight: Any, out: Any, stream: int | None, /) -> None: ...
def project_output(x: Any, weight: Any, out: Any, stream: int | None, /) -> None: ...
def simulate_decoding_step(
    num_heads: int,
    head_dim: int,
    latent_dim: int,
    rope_dim: int,
    page_block_size: int,
    batch_size: int,
    context_len: int,
    seed: int,
    num_threads: int,
) -> dict[str, Any]: ...
