"""`flashmla run`: lengths, shape, the check, what it reports."""

import json
import math

import pytest

SMALL = "run --device cpu --heads 4 --repeat 3 --check-rows 12 --json"


def test_document(flashmla):
    document = flashmla(f"{SMALL} --lengths 70,0,129 --s-q 2 --causal").json
    assert document["command"] == "run"
    assert document["lengths"] == [70, 0, 129]
    assert document["total_tokens"] == 199
    assert document["shape"] == {"b": 3, "s_q": 2, "h_q": 4, "h_kv": 1, "d_qk": 576, "d_v": 512, "page_size": 64,
                                 "max_pages": 3, "dtype": "bfloat16", "causal": True}
    assert math.isclose(document["softmax_scale"], 192**-0.5)
    assert document["kernel"] == "cpu_decode_dense"
    assert document["check"]["passed"] is True
    assert document["check"]["rows"] == 12
    assert 0 < document["check"]["worst_share_of_bound"] <= 1
    assert len(document["times_ms"]) == 3
    assert document["ms"] == sorted(document["times_ms"])[1]
    assert document["cache"] == {"bytes": 199 * 576 * 2, "mha_bytes": 199 * 2 * 4 * 128 * 2}
    moved = 199 * 576 * 2 + 3 * 2 * 4 * (576 * 2 + 512 * 2 + 4)
    assert math.isclose(document["gbps"], moved / document["ms"] / 1e6)
    assert math.isclose(document["tflops"], 2 * 4 * 2 * 199 * 1088 / document["ms"] / 1e9)
    assert document["ceilings"]["copy_gbps"] > 0
    assert document["ceilings"]["tflops"] > 0


def test_default_lengths(flashmla):
    document = flashmla("run --device cpu --heads 1 --repeat 1 --check-rows 1 --json").json
    assert document["lengths"] == [450, 18200, 3100]


@pytest.mark.parametrize("dtype, name", [("bf16", "bfloat16"), ("fp16", "float16")])
@pytest.mark.parametrize("dims", [(576, 512), (512, 512), (320, 256)])
def test_dtypes_and_dims(flashmla, dtype, name, dims):
    done = flashmla(f"{SMALL} --lengths 100 --dtype {dtype} --d-qk {dims[0]} --d-v {dims[1]} --page 16")
    assert done.code == 0
    assert done.json["shape"]["dtype"] == name
    assert done.json["check"]["passed"]


def test_empty_batch_entries_only(flashmla):
    done = flashmla(f"{SMALL} --lengths 0,0")
    assert done.code == 0
    assert done.json["check"]["passed"]


def test_trace(flashmla, tmp_path):
    trace = tmp_path / "trace.csv"
    rows = [(i, 10 * i + 7, i % 5) for i in range(50)]
    trace.write_text("input_tokens,output_tokens,arrival_ms\n" + "".join(f"{n},{out},{at}\r\n" for at, n, out in rows))
    picked = flashmla(f"{SMALL} --trace {trace} --requests 20 --seed 5").json["lengths"]
    assert len(picked) == 20
    inputs = [next(n for _, n, out in rows if n <= length <= n + out and (length > n or out == 0)) for length in picked]
    assert len(set(inputs)) == 20  # different requests
    assert flashmla(f"{SMALL} --trace {trace} --requests 20 --seed 5").json["lengths"] == picked
    assert flashmla(f"{SMALL} --trace {trace} --requests 20 --seed 6").json["lengths"] != picked
    assert len(flashmla(f"{SMALL} --trace {trace} --requests 500").json["lengths"]) == 50


@pytest.mark.parametrize("text, complaint", [
    ("a,b,c\n1,2,3\n", "arrival_ms"),
    ("arrival_ms,input_tokens,output_tokens\n1,2\n", "line 2, output_tokens"),
    ("arrival_ms,input_tokens,output_tokens\n1,2,3\n1,x,3\n", "line 3, input_tokens"),
    ("arrival_ms,input_tokens,output_tokens\n1,-2,3\n", "line 2, input_tokens"),
    ("arrival_ms,input_tokens,output_tokens\n", "holds no request"),
    ("", "arrival_ms"),
])
def test_bad_trace(flashmla, tmp_path, text, complaint):
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    done = flashmla(f"run --trace {trace}")
    assert done.code == 2
    assert complaint in done.err


@pytest.mark.parametrize("text", ["[7, 300,\n 64]", "7\n300\n64\n", "7;300;64", "7,300,64"])
def test_lengths_file(flashmla, tmp_path, text):
    path = tmp_path / "lengths"
    path.write_text(text)
    assert flashmla(f"{SMALL} --lengths-file {path}").json["lengths"] == [7, 300, 64]


def test_text_states_what_was_done(flashmla):
    text = flashmla("run --device cpu --lengths 450,1200 --heads 2 --repeat 1 --check-rows 8").out
    for part in ("2, cached tokens 450; 1,200 (1,650 in all)", "2 heads, 1 query token a request, dims 576 / 512, page 64, bfloat16",
                 "0.0721688 = 192^-0.5, as the model uses", "cpu_decode_dense: ", "PASS: 4 rows", "median of 1",
                 "11.1% less: so few heads"):
        assert part in text


def test_json_is_one_document_without_noise(flashmla):
    done = flashmla(f"{SMALL} --lengths 5")
    json.loads(done.out)
    assert done.err == ""


def test_more_than_two_heads_save(flashmla):
    assert "3.6 times as much" in flashmla("run --device cpu --lengths 100 --heads 8 --repeat 1 --check-rows 1").out
