"""Benchmark results as `flashmla bench --json` and the receipts below bench/results hold them, read into one form."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any


@dataclasses.dataclass
class Record:
    """One measured case: what it was (`key`, without the length) and what came out."""

    operation: str
    key: tuple[tuple[str, Any], ...]
    length: float | None
    ms: float
    tflops: float | None
    gbps: float | None

    def get(self, name: str) -> Any:
        return dict(self.key).get(name)


@dataclasses.dataclass
class Results:
    """One file: where it comes from, what the machine can do at most (None = not known), its records."""

    name: str
    device: str
    peak_tflops: float | None
    peak_gbps: float | None
    records: list[Record]


# What distinguishes cases, in the order of labels; (JSON key, how a value reads, the value that goes without saying).
FACTS: tuple[tuple[str, str, Any], ...] = (
    ("b", "b {}", None),
    ("h_q", "{} heads", None),
    ("h_kv", "{} KV heads", 1),
    ("s_q", "{} query tokens", 1),
    ("topk", "topk {}", 0),
    ("parts", "{} parts", None),
    ("d_qk", "d_qk {}", 576),
    ("d_v", "d_v {}", 512),
    ("head_dim", "head_dim {}", 128),
    ("kv_lora_rank", "kv_lora_rank {}", 512),
    ("dtype", "{}", "bfloat16"),
    ("format", "{} cache", "bf16"),
    ("to", "to {}", None),
    ("varlen", "ragged", False),
    ("causal", "causal", False),
    ("page", "page {}", 64),
    ("cache", "{} caches", "cold"),
    ("threads", "{} threads", None),
    ("batch_invariant", "batch-invariant", False),
)


def _words(text: str, value: Any) -> str:
    return text.format(value).removesuffix("s") if value == 1 else text.format(value)


def label(key: Sequence[tuple[str, Any]], leave_out: Iterable[str] = ()) -> str:
    """A case in words: "b 128, 128 heads, ragged"."""
    facts = dict(key)
    told = [name for name, _, usual in FACTS if name in facts and facts[name] != usual and name not in leave_out]
    return ", ".join(_words(text, facts[name]) for name, text, _ in FACTS if name in told)


def _number(record: dict[str, Any], *names: str) -> float | None:
    for name in names:
        value = record.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
            return float(value)
    return None


def _record(raw: dict[str, Any]) -> Record | None:
    ms = _number(raw, "ms", "ms_median", "ms_min")
    if ms is None:
        return None
    key = [(name, raw[name]) for name, _, _ in FACTS if name in raw]
    length = _number(raw, "len", "tokens", "n")
    if length is None and isinstance(raw.get("len"), str):
        key.append(("trace", raw["len"]))
    return Record(
        operation=str(raw.get("operation", "decode")),
        key=tuple(key),
        length=length,
        ms=ms,
        tflops=_number(raw, "tflops", "tflops_median", "tflops_min_time"),
        gbps=_number(raw, "gbps", "gbps_median", "gbps_min_time"),
    )


def _known_peaks(device: str) -> tuple[float | None, float | None]:
    """The library's own figures for a GPU, by its name."""
    from flashmla import plan

    for name in ("h200", "h100"):
        if name in device.lower():
            facts = plan(1, max_pages=1, device=name).device
            return facts["matrix_tflops"] or None, facts["memory_gbps"] or None
    return None, None


def load(path: str | pathlib.Path) -> Results:
    """Reads one result file; ValueError says what is wrong with it."""
    path = pathlib.Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("records"), list):
        raise ValueError(f"{path}: holds no records; wanted what `flashmla bench --json` writes")
    header = document.get("header", document)
    machine = header.get("machine") or {}
    ceilings = document.get("ceilings") or {}
    device = str(machine.get("name") or header.get("gpu") or header.get("cpu") or "unknown device")
    isa = machine.get("arch") if machine.get("device") == "cpu" else header.get("isa")
    tflops, gbps = _known_peaks(device)
    by_wall = [value for name, value in header.items() if name.startswith("peak_tflops_by_wall")]
    tflops = _number(ceilings, "tflops") or _number(machine, "matrix_tflops") or tflops or max(by_wall, default=None)
    gbps = _number(ceilings, "copy_gbps") or _number(machine, "memory_gbps") or gbps
    records = [record for raw in document["records"] if isinstance(raw, dict) and (record := _record(raw))]
    if not records:
        raise ValueError(f"{path}: none of its records holds a time")
    return Results(path.stem, f"{device}, {isa}" if isa else device, tflops, gbps, records)
