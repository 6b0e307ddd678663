"""Pictures of benchmark results: `python -m flashmla.plot roofline|latency|compare RESULTS.json... -o PICTURE.png`.

It reads what `flashmla bench --json` (or --output) writes and the receipts below bench/results. matplotlib is an extra:
`pip install flashmla[plot]`.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

from flashmla._bench_results import FACTS, Record, Results, label, load

# Colour-blind safe, dark enough on white (Okabe and Ito's set without yellow).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#5D3A9B", "#333333")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SUFFIXES = (".png", ".svg", ".pdf")
MOST_LINES = len(COLOURS) * 2
METRICS = {"ms": ("latency, ms", 1), "tflops": ("TFLOPS", -1), "gbps": ("GB/s", -1)}


def names_of(files: Sequence[Results]) -> list[str]:
    """A name for each file that tells it from the others."""
    names = [file.name for file in files]
    return [name if names.count(name) == 1 else f"{name} {i + 1}" for i, name in enumerate(names)]


def _title(files: Sequence[Results], what: str) -> str:
    operations = sorted({record.operation.replace("_", " ") for file in files for record in file.records})
    devices = sorted({file.device for file in files})
    return f"{what}: {', '.join(operations)}\n{'; '.join(devices)}"


def _log_axis(axis: Any, base: int, form: Callable[[float], str]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    def between(value: float, _: Any) -> str:
        """Labels at 2 and 5, where the axis has few powers of ten of its own."""
        low, high = axis.get_view_interval()
        first = round(value / 10.0 ** math.floor(math.log10(value)))
        return form(value) if high / low < 50 and first in (2, 5) else ""

    axis.set_major_locator(LogLocator(base=base, numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))
    axis.set_minor_locator(NullLocator() if base == 2 else LogLocator(base=base, subs=tuple(range(2, 10)), numticks=20))
    axis.set_minor_formatter(FuncFormatter(between))


def _tokens(value: float) -> str:
    return f"{value / 1024:g}k" if value >= 1024 and value % 512 == 0 else f"{value:g}"


def _plain(value: float) -> str:
    return f"{value:,.10g}"


def _roofs(files: Sequence[Results]) -> dict[str, tuple[float, float]]:
    """TFLOPS and GB/s of each device. A machine measures them anew for each file: the highest is nearest to what it can do."""
    roofs: dict[str, tuple[float, float]] = {}
    for file in files:
        if file.peak_tflops and file.peak_gbps:
            tflops, gbps = roofs.get(file.device, (0.0, 0.0))
            roofs[file.device] = max(tflops, file.peak_tflops), max(gbps, file.peak_gbps)
    return roofs


def roofline(files: Sequence[Results]) -> Any:
    """FLOP rate over arithmetic intensity, under the machine's two ceilings."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    # (file, heads, FLOP per byte, TFLOPS)
    points = [(i, int(r.get("h_q") or 0), 1e3 * r.tflops / r.gbps, r.tflops)
              for i, file in enumerate(files) for r in file.records if r.tflops and r.gbps]
    if not points:
        raise ValueError("roofline: no record has both tflops and gbps")
    figure = Figure(figsize=(9.5, 6), layout="constrained")
    axes = figure.subplots()
    left, right = min(point[2] for point in points) / 2, max(point[2] for point in points) * 3
    names = names_of(files)
    roofs = _roofs(files)
    for tflops, gbps in roofs.values():
        ridge = 1e3 * tflops / gbps
        left, right = min(left, ridge / 4), max(right, ridge * 2)
    for device, (tflops, gbps) in roofs.items():
        ridge = 1e3 * tflops / gbps
        axes.plot([left, ridge, right], [gbps * left / 1e3, tflops, tflops], color="#333333", linewidth=1.6, zorder=2.5)
        owner = f"{device}: " if len(roofs) > 1 else ""
        # Along the slope, a little above it.
        x = left * 1.15
        y = gbps * x / 1e3
        axes.text(x, y * 1.12, f"{gbps:,.4g} GB/s", rotation=math.degrees(math.atan2(y, x)), rotation_mode="anchor",
                  transform_rotates_text=True, ha="left", va="bottom", fontsize=9)
        axes.annotate(f"{owner}{tflops:,.4g} TFLOPS, ridge at {ridge:.0f} FLOP/B", (right, tflops), xytext=(-4, 5),
                      textcoords="offset points", ha="right", va="bottom", fontsize=9)
    heads = sorted({h for _, h, _, _ in points})
    for i, h, x, y in points:
        axes.plot(x, y, linestyle="none", marker=MARKERS[i % len(MARKERS)], markersize=7,
                  color=COLOURS[heads.index(h) % len(COLOURS)], markeredgecolor="white", markeredgewidth=0.6, zorder=3)
    handles = [Line2D([], [], linestyle="none", marker="o", color=COLOURS[i % len(COLOURS)],
                      label=f"{h} heads" if h else "no heads") for i, h in enumerate(heads)]
    if len(files) > 1:
        handles += [Line2D([], [], linestyle="none", marker=MARKERS[i % len(MARKERS)], color="#888888", label=name)
                    for i, name in enumerate(names)]
    axes.legend(handles=handles, loc="lower right", fontsize=9, frameon=True)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    _log_axis(axes.xaxis, 10, _plain)
    _log_axis(axes.yaxis, 10, _plain)
    axes.set_xlabel("arithmetic intensity, FLOP per byte of inputs and results")
    axes.set_ylabel("TFLOPS")
    axes.grid(True, which="both", color="#dddddd", linewidth=0.6)
    axes.set_title(_title(files, "Roofline"), fontsize=11)
    return figure


def _series(files: Sequence[Results]) -> dict[tuple[int, str, tuple[Any, ...]], dict[float, list[float]]]:
    """Times by length, for each case that was measured at two lengths or more."""
    found: dict[tuple[int, str, tuple[Any, ...]], dict[float, list[float]]] = {}
    for i, file in enumerate(files):
        for r in file.records:
            if r.length is not None:
                found.setdefault((i, r.operation, r.key), {}).setdefault(r.length, []).append(r.ms)
    return {case: times for case, times in found.items() if len(times) > 1}


def latency(files: Sequence[Results]) -> Any:
    """Time of a call over context length, a line for each case."""
    from matplotlib.figure import Figure

    series = _series(files)
    if not series:
        raise ValueError("latency: no case was measured at two lengths or more")
    if len(series) > MOST_LINES:
        raise ValueError(f"latency: {len(series)} lines are too many to tell apart (at most {MOST_LINES}); use --where")
    figure = Figure(figsize=(10.5, 6), layout="constrained")
    axes = figure.subplots()
    names = names_of(files)
    several = len({operation for _, operation, _ in series}) > 1
    # The slowest line first, so that the legend has the order of the lines.
    order = sorted(series.items(), key=lambda item: -statistics.median(item[1][max(item[1])]))
    for i, ((file, operation, key), times) in enumerate(order):
        words = [names[file]] * (len(files) > 1) + [operation.replace("_", " ")] * several + [label(key)]
        lengths = sorted(times)
        axes.plot(lengths, [statistics.median(times[length]) for length in lengths],
                  label=", ".join(word for word in words if word), color=COLOURS[i % len(COLOURS)],
                  marker=MARKERS[i % len(MARKERS)], markersize=5, linewidth=1.6,
                  linestyle="-" if i < len(COLOURS) else "--")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    _log_axis(axes.xaxis, 2, _tokens)
    _log_axis(axes.yaxis, 10, _plain)
    axes.set_xlabel("tokens (mean of a request where ragged)")
    axes.set_ylabel("time of one call, ms")
    axes.grid(True, which="both", color="#dddddd", linewidth=0.6)
    axes.set_title(_title(files, "Latency over context length"), fontsize=11)
    figure.legend(loc="outside right upper", fontsize=9, frameon=False)
    return figure


def compare(files: Sequence[Results], metric: str = "ms") -> Any:
    """The cases that all files measured, side by side: values left, ratios to the first file right."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if len(files) < 2:
        raise ValueError("compare: wanted two result files or more")
    values = []
    for file in files:
        found: dict[tuple[Any, ...], list[float]] = {}
        for r in file.records:
            value = getattr(r, metric)
            if value:
                found.setdefault((r.operation, r.key, r.length), []).append(value)
        values.append({case: statistics.median(times) for case, times in found.items()})
    cases = [case for case in values[0] if all(case in others for others in values[1:])]
    if not cases:
        raise ValueError(f"compare: no case has {metric} in every file")
    what, better = METRICS[metric]
    # Equal facts of every case are said once, above.
    facts = [dict(key) for _, key, _ in cases]
    constant = {name for name, _, _ in FACTS if len({repr(f.get(name)) for f in facts}) == 1} if len(cases) > 1 else set()
    several = len({operation for operation, _, _ in cases}) > 1
    labels = []
    for operation, key, length in cases:
        noun = "keys" if "prefill" in operation else "tokens"
        tokens = dict(key).get("trace") or (f"{_tokens(length)} {noun}" if length else "")
        words = [operation.replace("_", " ")] * several + [label(key, constant), tokens]
        labels.append(", ".join(word for word in words if word))
    figure = Figure(figsize=(11, 1.9 + 0.27 * len(cases)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    names = names_of(files)
    rows = list(range(len(cases)))
    for i, measured in enumerate(values):
        style = {"linestyle": "none", "marker": MARKERS[i % len(MARKERS)], "color": COLOURS[i % len(COLOURS)], "markersize": 6}
        left.plot([measured[case] for case in cases], rows, label=f"{names[i]} ({files[i].device})", **style)
        if i > 0:
            right.plot([measured[case] / values[0][case] for case in cases], rows, **style)
    right.axvline(1, color="#333333", linewidth=1)
    left.set_xscale("log")
    _log_axis(left.xaxis, 10, _plain)
    right.xaxis.set_major_locator(MaxNLocator(6))
    right.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}x"))
    left.set_yticks(rows, labels, fontsize=9)
    left.set_ylim(len(cases) - 0.5, -0.5)
    left.set_xlabel(what)
    right.set_xlabel(f"ratio to {names[0]}\n({'less' if better > 0 else 'more'} is better)")
    right.tick_params(axis="y", left=False)
    for axes in (left, right):
        axes.grid(True, color="#dddddd", linewidth=0.6)
    shared = label([pair for pair in cases[0][1] if pair[0] in constant])
    figure.suptitle(_title(files, "Side by side") + (f"\n{shared}" if shared else ""), fontsize=11)
    figure.legend(loc="outside lower center", ncols=min(len(files), 2), fontsize=9, frameon=False)
    return figure


def _save(figure: Any, path: pathlib.Path) -> None:
    """The same results give the same bytes: no date, and ids in SVG from a fixed salt."""
    import matplotlib

    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix, {})
    with matplotlib.rc_context({"svg.hashsalt": "flashmla", "font.family": "DejaVu Sans"}):
        figure.savefig(path, dpi=130, metadata=metadata)


def _condition(text: str) -> tuple[str, Any]:
    """`--where h_q=128` as name and value."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted NAME=VALUE, such as h_q=128 or dtype=float16")
    words: dict[str, Any] = {"true": True, "false": False}
    return name, words.get(value.lower(), int(value) if value.isdigit() else value)


def _holds(record: Record, name: str, value: Any) -> bool:
    facts = {**dict(record.key), "operation": record.operation, "len": record.length}
    if name not in facts:
        return False
    return bool(facts[name] == value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m flashmla.plot",
        description="Draws benchmark results: FLOP rates under a roofline, latency over context length, files side by side.",
        epilog="example: python -m flashmla.plot roofline bench/results/h200/decode_dense.json -o roofline.svg",
    )
    parser.add_argument("picture", choices=("roofline", "latency", "compare"))
    parser.add_argument("files", nargs="+", metavar="RESULTS.json", help="what `flashmla bench --json` writes, or a receipt")
    parser.add_argument("-o", "--output", required=True, type=pathlib.Path, help="a name that ends in .png, .svg or .pdf")
    parser.add_argument("--where", action="append", default=[], type=_condition, metavar="NAME=VALUE",
                        help="only records with that value (h_q, b, s_q, dtype, causal, operation, ...); repeatable")
    parser.add_argument("--metric", choices=tuple(METRICS), default="ms", help="what `compare` shows (default: %(default)s)")
    return parser


def draw(picture: str, files: Sequence[Results], metric: str = "ms") -> Any:
    """The matplotlib figure of "roofline", "latency" or "compare"; ValueError when the results do not have what it needs."""
    if picture == "roofline":
        return roofline(files)
    return latency(files) if picture == "latency" else compare(files, metric)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: 0 fine, 2 bad input, 3 matplotlib is missing, 4 the picture cannot be written."""
    options = _parser().parse_args(arguments)
    try:
        if options.output.suffix not in SUFFIXES:
            raise ValueError(f"--output: got {options.output}, wanted a name that ends in {', '.join(SUFFIXES)}")
        files = [load(path) for path in options.files]
        for file in files:
            file.records = [r for r in file.records if all(_holds(r, *condition) for condition in options.where)]
        import matplotlib  # noqa: F401  # found missing here, before anything is drawn

        figure = draw(options.picture, files, options.metric)
    except ImportError as error:
        print(f"flashmla.plot: matplotlib is missing ({error}); install it with: pip install 'flashmla[plot]'", file=sys.stderr)
        return 3
    except ValueError as error:
        print(f"flashmla.plot: {error}", file=sys.stderr)
        return 2
    try:
        _save(figure, options.output)
    except OSError as error:
        print(f"flashmla.plot: {options.output}: cannot be written: {error.strerror}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
