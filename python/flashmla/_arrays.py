"""Arrays of any framework, handled by what they can do; no framework is imported here, only found when already loaded."""

from __future__ import annotations

import contextlib
import importlib
import sys
from types import ModuleType
from typing import Any, cast

from flashmla import _core


def _framework(array: Any) -> ModuleType | None:
    """The top-level module an array's type comes from; jaxlib's arrays belong to jax."""
    name = type(array).__module__.partition(".")[0]
    return sys.modules.get("jax" if name == "jaxlib" else name)


def _is_torch_like(array: Any) -> bool:
    return hasattr(array, "new_empty") and hasattr(array, "detach")


class _Ordered:
    """A CUDA array whose memory is handed out ordered before the work on one stream (DLPack numbers the default stream 1)."""

    def __init__(self, array: Any, stream: int | None) -> None:
        self._array = array
        self._stream = stream or 1

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(stream=self._stream, **options)


def is_on_host(array: Any) -> bool:
    """True for CPU arrays and plain buffers."""
    where = getattr(array, "__dlpack_device__", None)
    return where is None or where()[0] in (1, 3)  # kDLCPU, kDLCUDAHost


def stream_address(array: Any, stream: Any) -> int | None:
    """The CUDA stream to use, as an address; None when the extension can ask the array's framework itself, or on a CPU.

    `stream` may be an address, or a stream object of torch (`cuda_stream`), CuPy (`ptr`) or the `__cuda_stream__` protocol.
    """
    if stream is not None:
        if isinstance(stream, int):
            return stream
        if hasattr(stream, "__cuda_stream__"):
            protocol = stream.__cuda_stream__
            return int((protocol() if callable(protocol) else protocol)[1])
        for attribute in ("cuda_stream", "ptr"):
            if hasattr(stream, attribute):
                return int(getattr(stream, attribute))
        raise ValueError(f"stream: got an object of type {type(stream).__name__}, wanted a stream's address or object")
    if hasattr(type(array), "__dlpack_c_exchange_api__") or is_on_host(array):
        return None
    framework = _framework(array)
    if framework is not None and hasattr(framework, "cuda"):
        if _is_torch_like(array):
            return int(framework.cuda.current_stream(array.device).cuda_stream)
        if hasattr(framework.cuda, "get_current_stream"):
            with array.device:
                return int(framework.cuda.get_current_stream().ptr)
    raise NotImplementedError(
        f"q: a CUDA array of type {type(array).__name__}, whose framework does not say which stream it works on; "
        "pass stream= and out= and lse="
    )


def working_on(array: Any, stream: int | None) -> contextlib.AbstractContextManager[Any]:
    """Makes an explicitly given stream the framework's current one, so that what it allocates belongs to that stream."""
    framework = _framework(array)
    if stream is None or is_on_host(array) or framework is None or not hasattr(framework, "cuda"):
        return contextlib.nullcontext()
    if _is_torch_like(array):
        external = framework.cuda.ExternalStream(stream, device=array.device)
        return cast(contextlib.AbstractContextManager[Any], framework.cuda.stream(external))
    return cast(contextlib.AbstractContextManager[Any], framework.cuda.ExternalStream(stream))


def needs_workspace(array: Any) -> bool:
    """Whether the extension cannot allocate scratch memory by itself: CUDA arrays without a DLPack exchange table."""
    return not hasattr(type(array), "__dlpack_c_exchange_api__") and not is_on_host(array)


def export(array: Any, stream: int | None) -> Any:
    """What the extension can read: the array itself, one ordered before the work on `stream`, or (bits, dtype name)."""
    if array is None or hasattr(type(array), "__dlpack_c_exchange_api__"):
        return array
    if _holds_ml_dtypes(array) and array.dtype.kind == "V":
        return array.view(f"uint{8 * array.dtype.itemsize}"), array.dtype.name
    if _is_torch_like(array):
        array = array.detach()
    if hasattr(array, "__dlpack__") and not is_on_host(array):
        return _Ordered(array, stream)
    return array


def _holds_ml_dtypes(array: Any) -> bool:
    """NumPy and CuPy arrays hold ml_dtypes elements but cannot export them; they view them as integers without a copy."""
    return type(array).__module__.partition(".")[0] in ("numpy", "cupy")


def dtype_name(array: Any) -> str:
    """The element type's name as this library has it ("bfloat16"); "" for plain buffers."""
    return str(getattr(array, "dtype", "")).removeprefix("torch.")


def output_dtype(q: Any) -> str | None:
    """The dtype of attention outputs, for `empty`: q's own, or bfloat16 for e4m3 queries."""
    return "bfloat16" if dtype_name(q) == "float8_e4m3fn" else None


def _element_type(name: str) -> Any:
    """What numpy.empty and cupy.empty take for a dtype's name; only ml_dtypes knows those that NumPy does not."""
    if name in ("bfloat16", "float8_e4m3fn"):
        return getattr(importlib.import_module("ml_dtypes"), name)
    return name


def empty(like: Any, shape: tuple[int, ...], dtype: str | None) -> Any:
    """An array of `like`'s framework on its device; dtype None is like's own, otherwise a name ("float32", "uint8").

    Frameworks whose arrays cannot be written (JAX), and plain buffers, get memory of this library: see `deliver`.
    """
    framework = _framework(like)
    if framework is not None and _is_torch_like(like):
        return like.new_empty(shape, dtype=like.dtype if dtype is None else getattr(framework, dtype))
    if framework is not None and _holds_ml_dtypes(like):
        with like.device if framework.__name__ == "cupy" else contextlib.nullcontext():
            return framework.empty(shape, dtype=like.dtype if dtype is None else _element_type(dtype))
    if not is_on_host(like):
        raise NotImplementedError(f"out: cannot allocate a CUDA array for {type(like).__name__}; pass out= and lse=")
    if dtype is None:
        dtype = dtype_name(like) or "float16"
    return _core.host_array(shape, dtype)


def fill_in(like: Any, *outputs: tuple[Any, tuple[int, ...], str | None]) -> tuple[Any, ...]:
    """The arrays of (array or None, shape, dtype for `empty`), with fresh ones where there is None."""
    return tuple(empty(like, tuple(shape), dtype) if array is None else array for array, shape, dtype in outputs)


def numpy_prototype() -> Any:
    """A NumPy array, as something to make others like."""
    return importlib.import_module("numpy").empty(0)


def can_be_written(array: Any) -> bool:
    """Whether arrays of this one's framework can be written in place, as caches are."""
    return _is_torch_like(array) or _holds_ml_dtypes(array)


def deliver(like: Any, array: Any) -> Any:
    """Memory of this library as an array of `like`'s framework (zero-copy where it can); others pass through."""
    if not isinstance(array, _core.HostArray):
        return array
    framework = _framework(like)
    for namespace in (framework, getattr(framework, "numpy", None)):
        if namespace is not None and hasattr(namespace, "from_dlpack"):
            return namespace.from_dlpack(array)
    return array
