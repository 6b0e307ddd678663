"""Scheduler metadata: bookkeeping for callers only. Kernels derive their schedule from the lengths, and never read any of this."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map

COLUMNS = 8
_INT32 = torch.int32


class Config(NamedTuple):
    """What a metadata object was first used for. _core.decode_torch compares it with a call, field by field in this order."""

    b: int
    s_q: int
    h_q: int
    page_block_size: int
    h_k: int
    causal: bool
    is_fp8_kvcache: bool
    topk: int | None = None
    extra_page_block_size: int | None = None
    extra_topk: int | None = None


class FlashMLASchedMeta:
    """Metadata of one kind of call. Once it holds a table it also acts as that int32 tensor of shape (P, 8).

    Made empty by `get_mla_metadata()`, it is filled at its first use and from then on serves that kind of call only. Made by
    `get_mla_metadata(cache_seqlens, ...)` it holds a table from the start and serves any call. Tables that nobody looks at
    are never made: each would take two launches.
    """

    def __init__(
        self,
        have_initialized: bool = False,
        config: Config | None = None,
        tile_scheduler_metadata: torch.Tensor | None = None,
        num_splits: torch.Tensor | None = None,
    ) -> None:
        self.have_initialized = have_initialized
        self.config = config
        self._table = tile_scheduler_metadata
        self._num_splits = num_splits
        self._device: torch.device | None = None  # where tables are made once they are asked for; None: there are none

    @property
    def tile_scheduler_metadata(self) -> torch.Tensor | None:
        if self._table is None and self._device is not None:
            self._table = make_table(self._device)
        return self._table

    @tile_scheduler_metadata.setter
    def tile_scheduler_metadata(self, table: torch.Tensor | None) -> None:
        self._table = table

    @property
    def num_splits(self) -> torch.Tensor | None:
        if self._num_splits is None and self._device is not None and self.config is not None:
            self._num_splits = make_num_splits(self.config.b, self._device)
        return self._num_splits

    @num_splits.setter
    def num_splits(self, num_splits: torch.Tensor | None) -> None:
        self._num_splits = num_splits

    def __repr__(self) -> str:
        shape = None if self._table is None else tuple(self._table.shape)
        return f"FlashMLASchedMeta(have_initialized={self.have_initialized}, config={self.config}, table={shape})"

    def _as_tensor(self) -> torch.Tensor:
        table = self.tile_scheduler_metadata
        if table is None:
            raise AttributeError("FlashMLASchedMeta: no table yet, it is filled at the first use")
        return table

    def __getattr__(self, name: str) -> Any:
        # Reached for what the object itself does not have. Dunder names stay the object's own (copy, pickle, protocols).
        if name.startswith("__") or "_table" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._as_tensor(), name)

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self._as_tensor()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._as_tensor()[index] = value

    def __len__(self) -> int:
        return len(self._as_tensor())

    def __bool__(self) -> bool:
        return True

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """torch functions see the table: static_buffer.copy_(metadata), torch.empty_like(metadata), ..."""

        def unwrap(value: Any) -> Any:
            return value._as_tensor() if isinstance(value, cls) else value

        return function(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))


_ROWS: dict[torch.device, int] = {}


def _rows(device: torch.device) -> int:
    """P, one number a device: tables of any two calls fit into each other. A dictionary, so that torch.compile sees through."""
    rows = _ROWS.get(device)
    if rows is None:
        rows = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
        _ROWS[device] = rows
    return rows


FlashMLASchedMeta.Config = Config  # type: ignore[attr-defined]  # callers reach it through the class


def make_table(device: torch.device) -> torch.Tensor:
    """(P, 8)"""
    return torch.zeros((_rows(device), COLUMNS), dtype=torch.int32, device=device)


def make_num_splits(b: int, device: torch.device) -> torch.Tensor:
    """(b + 1,), cumulative: one split a request."""
    return torch.arange(b + 1, dtype=torch.int32, device=device)


def get_mla_metadata(*args: Any, **kwargs: Any) -> tuple[FlashMLASchedMeta, torch.Tensor | None]:
    """Metadata for flash_mla_with_kvcache, in either of two forms.

    get_mla_metadata() -> (FlashMLASchedMeta, None): filled at its first use, then checked on each later one.

    get_mla_metadata(cache_seqlens, num_heads_per_head_k, num_heads_k, num_heads_q=None, is_fp8_kvcache=False, topk=None) ->
    (FlashMLASchedMeta, num_splits): cache_seqlens is (b,) int32; the first value acts as an int32 tensor of shape (P, 8) on
    cache_seqlens's device, P at most the number of multiprocessors and independent of b and of the lengths; num_splits is
    (b + 1,) int32. The second argument is also known as num_q_tokens_per_head_k.

    Results never depend on what metadata holds, so it may be stale, sliced, copied into static buffers or written by hand.
    """
    cache_seqlens = args[0] if args else kwargs.get("cache_seqlens")
    if not isinstance(cache_seqlens, torch.Tensor):
        return FlashMLASchedMeta(), None
    check_lengths(cache_seqlens)
    device = cache_seqlens.device
    num_splits = make_num_splits(cache_seqlens.shape[0], device)
    metadata = FlashMLASchedMeta(True, None, None, num_splits)
    metadata._device = device
    return metadata, num_splits


def check_lengths(cache_seqlens: torch.Tensor) -> None:
    if cache_seqlens.dtype != torch.int32 or cache_seqlens.dim() != 1:
        got = f"{_kind(cache_seqlens)} of shape {tuple(cache_seqlens.shape)}"
        raise ValueError(f"cache_seqlens: got {got}, wanted int32 of shape (b,)")


def check_tables(metadata: Any, num_splits: Any) -> None:
    """Metadata given as plain tensors: any int32 tensors will do, since nothing reads them."""
    try:
        if metadata.dtype is _INT32 and (num_splits is None or num_splits.dtype is _INT32):
            return
    except AttributeError:
        pass
    for name, value in (("tile_scheduler_metadata", metadata), ("num_splits", num_splits)):
        if value is None and name == "num_splits":
            continue
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"{name}: got {type(value).__name__}, wanted get_mla_metadata's or an int32 tensor")
        if value.dtype != torch.int32:
            raise ValueError(f"{name}: got {_kind(value)}, wanted int32")


def check_use(metadata: FlashMLASchedMeta, q: torch.Tensor, k_cache: torch.Tensor, causal: bool, *modes: Any) -> None:
    """Refuses an object that another kind of call has filled.

    `modes` are is_fp8_kvcache, topk, extra_page_block_size and extra_topk of a call that is more than dense decode.
    """
    known = metadata.config
    if known is None:
        return
    try:
        now = _config(q, k_cache, causal, *modes)
    except (AttributeError, IndexError, ValueError):
        return  # malformed tensors: the operation itself names what is wrong
    if known == now:
        return
    for field in Config._fields:
        before, wanted = getattr(known, field), getattr(now, field)
        if before != wanted:
            raise ValueError(
                f"tile_scheduler_metadata: got an object first used with {field} = {before}, wanted one for "
                f"{field} = {wanted}; make a new one with get_mla_metadata() for each kind of call"
            )


def mark_used(
    metadata: FlashMLASchedMeta, q: torch.Tensor, k_cache: torch.Tensor, causal: bool, *modes: Any
) -> None:
    """Fills an object at its first use, of which check_use has the arguments. Tables that the caller has put there stay."""
    metadata.config = _config(q, k_cache, causal, *modes)
    metadata._device = q.device
    metadata.have_initialized = True


def _config(q: torch.Tensor, k_cache: torch.Tensor, causal: bool, *modes: Any) -> Config:
    b, s_q, h_q, _ = q.shape
    return Config(b, s_q, h_q, k_cache.shape[1], k_cache.shape[2], bool(causal), *(modes or [False]))


def _kind(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
