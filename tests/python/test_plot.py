"""`python -m flashmla.plot`: results of every layout read, pictures that show what was measured, clear refusals."""

import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from flashmla import _bench_results, plot

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "bench/results"
H200 = RESULTS / "h200/decode_dense.json"
CPU = sorted((RESULTS / "cpu").glob("decode_dense_*.json"))


def record(length, ms, **more):
    return {"operation": "decode", "dtype": "bfloat16", "b": 1, "h_q": 16, "s_q": 1, "len": length, "ms": ms, "tflops": 10.0,
            "gbps": 300.0, "varlen": False, "causal": False, "page": 64, **more}


@pytest.fixture
def results(tmp_path):
    """Writes a result file as `flashmla bench --json` does."""

    def write(name, records, **header):
        path = tmp_path / name
        path.write_text(json.dumps({"command": "bench", **header, "records": records}))
        return path

    return write


def texts(figure):
    import matplotlib.text

    return {text.get_text() for text in figure.findobj(matplotlib.text.Text)} - {""}


def test_committed_receipts_are_read():
    h200 = _bench_results.load(H200)
    assert h200.device == "NVIDIA H200"
    assert (h200.peak_tflops, h200.peak_gbps) == (740, 4200)
    assert len(h200.records) == len(json.loads(H200.read_text())["records"])
    for path in CPU:
        cpu = _bench_results.load(path)
        assert cpu.peak_tflops > 0
        assert all(r.ms > 0 and r.tflops > 0 for r in cpu.records)
    others = [path for path in RESULTS.glob("**/*.json") if "records" in json.loads(path.read_text())]
    assert all(_bench_results.load(path).records for path in others)


def test_latency_draws_the_measured_times():
    figure = plot.latency([_bench_results.load(H200)])
    (axes,) = figure.axes
    wanted = {r["len"]: r["ms"] for r in json.loads(H200.read_text())["records"]
              if (r["b"], r["h_q"]) == (32, 16) and r["dtype"] == "bfloat16"}
    lines = {line.get_label(): line for line in axes.get_lines()}
    drawn = lines["b 32, 16 heads"]
    assert dict(zip(drawn.get_xdata(), drawn.get_ydata(), strict=True)) == wanted
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert {"time of one call, ms", "Latency over context length: decode\nNVIDIA H200"} <= texts(figure)


def test_roofline_has_the_roof_and_every_record():
    figure = plot.roofline([_bench_results.load(H200)])
    roof, *points = figure.axes[0].get_lines()
    assert max(roof.get_ydata()) == 740
    assert roof.get_xdata()[1] == pytest.approx(740e3 / 4200)
    assert len(points) == len(json.loads(H200.read_text())["records"])
    assert {"8 heads", "128 heads", "4,200 GB/s"} <= texts(figure)


def test_compare_shows_ratios_of_shared_cases(results):
    first = results("first.json", [record(1024, 2.0), record(2048, 4.0), record(4096, 9.0)])
    second = results("second.json", [record(1024, 1.0), record(2048, 6.0), record(8192, 9.0)])
    figure = plot.compare([_bench_results.load(first), _bench_results.load(second)])
    left, right = figure.axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["1k tokens", "2k tokens"]
    assert list(right.get_lines()[0].get_xdata()) == [0.5, 1.5]
    assert any("b 1, 16 heads" in text for text in texts(figure))  # what all cases share, said once


def test_roofline_of_several_files_of_one_machine(results):
    """Ceilings are measured anew for each file: one roof is drawn, of the highest; its slope is in the picture."""
    machine = {"device": "cpu", "name": "some CPU", "arch": "avx2"}
    files = [_bench_results.load(results(f"{i}.json", [record(64, 1.0, operation="dense_prefill", tflops=0.05, gbps=0.2)],
                                         machine=machine)) for i in range(2)]
    (files[0].peak_tflops, files[0].peak_gbps), (files[1].peak_tflops, files[1].peak_gbps) = (0.1, 20), (0.2, 10)
    figure = plot.roofline(files)
    roofs = [line for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 3]
    assert [list(line.get_ydata())[1:] for line in roofs] == [[0.2, 0.2]]
    assert {"20 GB/s", "0.2 TFLOPS, ridge at 10 FLOP/B"} <= texts(figure)
    assert figure.axes[0].get_xlim()[0] < 10


def test_compare_tells_operations_apart_by_their_own_facts(results):
    def merge(parts, ms):
        return {"operation": "merge", "b": 8, "h_q": 16, "s_q": 1, "d_v": 512, "parts": parts, "ms": ms}

    files = [_bench_results.load(results(f"{i}.json", [merge(2, 15.0 + i), merge(8, 60.0 + i)])) for i in range(2)]
    figure = plot.compare(files)
    left = figure.axes[0]
    assert [text.get_text() for text in left.get_yticklabels()] == ["2 parts", "8 parts"]
    assert {"20", "50"} <= {text.get_text() for text in left.get_xticklabels(minor=True)}  # between 10 and 100
    queries = [{"operation": "dense_prefill", "s_q": 8, "len": n, "d_v": 128, "ms": 1.0} for n in (64, 128)]
    shown = plot.compare([_bench_results.load(results(f"{name}.json", queries)) for name in "ab"])
    assert [text.get_text() for text in shown.axes[0].get_yticklabels()] == ["64 keys", "128 keys"]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("words", [["roofline", H200], ["latency", H200], ["compare", *CPU, "--metric", "tflops"]])
def test_command_writes_pictures(tmp_path, words, suffix):
    picture = tmp_path / f"picture{suffix}"
    assert plot.main([*map(str, words), "-o", str(picture)]) == 0
    data = picture.read_bytes()
    if suffix == ".png":
        assert data.startswith(b"\x89PNG")
    else:
        assert xml.etree.ElementTree.fromstring(data).tag.endswith("svg")
        again = tmp_path / "again.svg"
        plot.main([*map(str, words), "-o", str(again)])
        assert again.read_bytes() == data


def test_nothing_overlaps():
    """The words of a picture, once laid out, do not lie on each other and lie inside the picture."""
    import matplotlib.text
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    for figure in (plot.roofline([_bench_results.load(H200)]), plot.latency([_bench_results.load(H200)]),
                   plot.compare([_bench_results.load(path) for path in CPU])):
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        boxes = [(text.get_text(), text.get_window_extent()) for text in figure.findobj(matplotlib.text.Text)
                 if text.get_text() and text.get_visible() and text.get_rotation() == 0]
        inside = figure.bbox
        # Labels of ticks outside the limits are not drawn.
        ticks = {tick.get_text() for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for tick in axis.get_ticklabels()}
        for i, (name, box) in enumerate(boxes):
            if name in ticks:
                continue
            assert inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1, name
            for other, second in boxes[i + 1:]:
                assert other in ticks or not box.overlaps(second), (name, other)


def test_where_picks_records(tmp_path, results):
    path = results("both.json", [record(n, n / 1e3, h_q=h) for n in (1024, 2048) for h in (16, 128)])
    loaded = _bench_results.load(path)
    assert len(plot.latency([loaded]).axes[0].get_lines()) == 2
    picture = tmp_path / "x.svg"
    assert plot.main(["latency", str(path), "-o", str(picture), "--where", "h_q=128"]) == 0
    assert plot.main(["latency", str(path), "-o", str(picture), "--where", "h_q=3"]) == 2
    with pytest.raises(SystemExit):
        plot.main(["latency", str(path), "-o", str(picture), "--where", "h_q"])


@pytest.mark.parametrize("text, complaint", [
    ("{", "cannot be read as JSON"),
    ("[]", "holds no records"),
    ('{"records": 3}', "holds no records"),
    ('{"records": []}', "none of its records"),
    ('{"records": [{"ms": "fast"}, 7]}', "none of its records"),
    ('{"records": [{"ms": -1}, {"ms": NaN}]}', "none of its records"),
])
def test_bad_files_are_named(tmp_path, capsys, text, complaint):
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert plot.main(["latency", str(path), "-o", str(tmp_path / "x.png")]) == 2
    message = capsys.readouterr().err
    assert complaint in message and "bad.json" in message


def test_other_refusals(tmp_path, capsys, results):
    one = results("one.json", [record(1024, 1.0)])
    for words, complaint in ((["latency", one, "-o", tmp_path / "x.png"], "two lengths"),
                             (["compare", one, "-o", tmp_path / "x.png"], "two result files"),
                             (["latency", one, "-o", tmp_path / "x.txt"], ".png, .svg"),
                             (["latency", tmp_path / "none.json", "-o", tmp_path / "x.png"], "none.json")):
        assert plot.main([str(word) for word in words]) == 2
        assert complaint in capsys.readouterr().err
    assert plot.main(["roofline", str(one), "-o", str(tmp_path / "no/such/x.png")]) == 4


def test_without_matplotlib(tmp_path):
    """In a process where importing it fails."""
    script = ("import sys; sys.modules['matplotlib'] = None; from flashmla import plot; "
              f"sys.exit(plot.main(['latency', {str(H200)!r}, '-o', {str(tmp_path / 'x.png')!r}]))")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 3
    assert "pip install 'flashmla[plot]'" in done.stderr
