"""The pages of a latent KV cache: making, writing, reading, copying and converting them."""

from __future__ import annotations

from typing import Any

from flashmla import _arrays, _core
from flashmla._arguments import integer, number, one_of, shape

FORMATS = ("bf16", "fp16", "fp8_flat", "fp8_656", "fp8_584")
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp8_flat": "float8_e4m3fn"}
_ROW_DTYPES = ("bfloat16", "float16", "float32")


def empty_cache(num_pages: int, page_size: int = 64, *, format: str = "bf16", d_qk: int | None = None, like: Any = None) -> Any:
    """A cache of uninitialised pages; decode never reads a byte that holds no token, so nothing needs to be cleared.

    Arguments:
        num_pages: pages in the pool.
        page_size: tokens a page.
        format: "bf16", "fp16", "fp8_flat" (one e4m3 byte a value), "fp8_656" (DeepSeek-V3.2) or "fp8_584" (V4).
        d_qk: values a token; None means 512 for fp8_584 and 576 for the others.
        like: an array whose framework and device the cache gets (torch, CuPy, NumPy); None makes a NumPy array.

    Returns:
        (num_pages, page_size, 1, record): d_qk values of bfloat16, float16 or float8_e4m3fn, or 656 or 584 bytes (uint8). Of
        fp8_584 only the page stride describes real bytes: pages are rounded up to multiples of 576.

    Raises:
        ValueError: sizes or a format that make no sense, or a `like` whose arrays cannot be written.
    """
    one_of("format", format, FORMATS)
    num_pages, page_size = integer("num_pages", num_pages), integer("page_size", page_size)
    d_qk = (512 if format == "fp8_584" else 576) if d_qk is None else integer("d_qk", d_qk)
    for argument, value, least in (("num_pages", num_pages, 0), ("page_size", page_size, 1), ("d_qk", d_qk, 1)):
        if value < least:
            raise ValueError(f"{argument}: got {value}, wanted at least {least}")
    packed = {"fp8_656": 576, "fp8_584": 512}.get(format)
    if packed is not None and d_qk != packed:
        raise ValueError(f"d_qk: got {d_qk}, wanted {packed}, the only width of {format}")
    if like is None:
        like = _arrays.numpy_prototype()
    if not _arrays.can_be_written(like):
        raise ValueError(f"like: got an array of type {type(like).__name__}, wanted one of torch, CuPy or NumPy")
    record = _core.cache_record_bytes(format, d_qk)
    if format in _DTYPES:
        return _arrays.empty(like, (num_pages, page_size, 1, d_qk), _DTYPES[format])
    pages = _arrays.empty(like, (num_pages, _core.cache_page_bytes(format, d_qk, page_size)), "uint8")
    return pages[:, : page_size * record].reshape(num_pages, page_size, 1, record)


def append(
    latent: Any,
    rope: Any,
    cache: Any,
    slot_ids: Any,
    *,
    positions: Any = None,
    cos_sin: Any = None,
    rotary_style: str = "interleaved",
    cache_scale: float = 1.0,
    power_of_two_scales: bool = True,
    stream: Any = None,
) -> None:
    """Writes new tokens into a cache, quantising as its format asks.

    Arguments:
        latent: (n, d_qk - d_rope), bfloat16, float16 or float32: 512 values for DeepSeek, 448 for fp8_584.
        rope: (n, d_rope) of latent's dtype, the rotary part; None when a record has none.
        cache: (num_pages, page_size, 1, record), written in place; its dtype and record tell the format (`empty_cache`).
        slot_ids: (n,) int32 or int64, where each token goes: page * page_size + offset. Negative ones are skipped; of a slot
            given twice the last token stays.
        positions: (n,) int32 or int64; with cos_sin, rope is rotated by its position before it is stored.
        cos_sin: (max_position, d_rope) float32: the cosines of a position's d_rope / 2 angles, then their sines.
        rotary_style: which values form a pair: "interleaved" (x[2i], x[2i + 1]) or "halves" (x[i], x[i + d_rope / 2]).
        cache_scale: fp8_flat: what a stored value of 1 is worth.
        power_of_two_scales: fp8_656: scales are rounded up to powers of two (fp8_584 always has such).
        stream: as in `decode`.

    Raises:
        ValueError, NotImplementedError, RuntimeError: as `decode` does.
    """
    halves = one_of("rotary_style", rotary_style, ("interleaved", "halves")) == "halves"
    address = _arrays.stream_address(latent, stream)
    arrays = tuple(_arrays.export(array, address) for array in (latent, rope, cache, slot_ids, positions, cos_sin))
    _core.append(arrays, halves, number("cache_scale", cache_scale), bool(power_of_two_scales), address)


def gather(
    cache: Any,
    slot_ids: Any = None,
    *,
    block_table: Any = None,
    cu_seqlens: Any = None,
    out: Any = None,
    dtype: str = "bfloat16",
    d_qk: int | None = None,
    cache_scale: float = 1.0,
    stream: Any = None,
) -> Any:
    """Reads tokens of any cache format as rows of plain values: by slot, or whole requests one after the other.

    Arguments:
        cache: (num_pages, page_size, 1, record) of any format.
        slot_ids: (n,) int32 or int64; a negative one gives a row of zeros. Either this, or block_table and cu_seqlens.
        block_table: (b, max_pages) int32, the pages of each request in order.
        cu_seqlens: (b + 1,) int32: request i fills the rows [cu[i], cu[i + 1]) with its first tokens.
        out: (n, d_qk) bfloat16, float16 or float32 to write into; a fresh array of `dtype` by default.
        dtype: element type of a fresh out: "bfloat16", "float16" or "float32".
        d_qk: values a record holds; None tells it from the record.
        cache_scale: fp8_flat: what a stored value of 1 is worth.
        stream: as in `decode`.

    Returns:
        out, (n, d_qk).

    Raises:
        ValueError, NotImplementedError, MemoryError, RuntimeError: as `decode` does.
    """
    address = _arrays.stream_address(cache, stream)
    cache_, slots_, table_, lengths_ = (
        _arrays.export(array, address) for array in (cache, slot_ids, block_table, cu_seqlens)
    )
    width = _values("cache", cache_, d_qk)
    with _arrays.working_on(cache, address):
        if out is None:
            rows = _core.gather_rows(cache_, slots_, table_, lengths_)
            out = _arrays.empty(cache, (rows, width), one_of("dtype", dtype, _ROW_DTYPES))
        scale = number("cache_scale", cache_scale)
        _core.gather(cache_, width, slots_, table_, lengths_, _arrays.export(out, address), scale, address)
    return _arrays.deliver(cache, out)


def copy_pages(source: Any, destination: Any, page_pairs: Any, *, d_qk: int | None = None, stream: Any = None) -> None:
    """Copies whole pages, bytes as they are.

    Arguments:
        source: (num_pages, page_size, 1, record) of any format.
        destination: a cache of the same page size, record and dtype, written in place; may be source itself.
        page_pairs: (n, 2) int32 or int64: source page, destination page. No page may be both read and written.
        d_qk: values a record holds; None tells it from the record.
        stream: as in `decode`.

    Raises:
        ValueError, NotImplementedError, RuntimeError: as `decode` does.
    """
    address = _arrays.stream_address(source, stream)
    source_, destination_, pairs_ = (_arrays.export(array, address) for array in (source, destination, page_pairs))
    _core.copy_pages(source_, destination_, pairs_, _values("source", source_, d_qk), address)


def convert(
    source: Any,
    destination: Any = None,
    *,
    format: str | None = None,
    d_qk: int | None = None,
    source_scale: float = 1.0,
    destination_scale: float = 1.0,
    power_of_two_scales: bool = True,
    stream: Any = None,
) -> Any:
    """Rewrites every token of a cache in another format of the same d_qk, through float32.

    Arguments:
        source: (num_pages, page_size, 1, record) of any format.
        destination: a cache of the same pages to write into; a fresh one of `format` by default.
        format: of a fresh destination, see `empty_cache`.
        d_qk: values a record holds; None tells it from the source's record.
        source_scale: fp8_flat source: what a stored value of 1 is worth.
        destination_scale: the same for an fp8_flat destination.
        power_of_two_scales: fp8_656 destination: scales are rounded up to powers of two.
        stream: as in `decode`.

    Returns:
        destination.

    Raises:
        ValueError, NotImplementedError, MemoryError, RuntimeError: as `decode` does.
    """
    address = _arrays.stream_address(source, stream)
    source_ = _arrays.export(source, address)
    width = _values("source", source_, d_qk)
    with _arrays.working_on(source, address):
        if destination is None:
            if format is None:
                raise ValueError("destination, format: got neither, wanted one of them")
            num_pages, page_size, _, _ = shape("source", source, "num_pages", "page_size", "1", "record")
            destination = empty_cache(num_pages, page_size, format=format, d_qk=width, like=source)
        scales = number("source_scale", source_scale), number("destination_scale", destination_scale)
        _core.convert(source_, _arrays.export(destination, address), width, *scales, bool(power_of_two_scales), address)
    return destination


def _values(argument: str, cache: Any, d_qk: int | None) -> int:
    """Values a record holds: as the caller says, or as the record's size tells."""
    return _core.values_of_record(argument, cache) if d_qk is None else integer("d_qk", d_qk)
