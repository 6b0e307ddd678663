"""`flashmla verify OPERATION` and `flashmla bench OPERATION`, for every operation but dense decode."""

import json
import math
import re

import pytest

SIZES = {
    "decode_formats": "--len 200 --heads 4 --b 2 --page 16", "sparse_decode": "--len 300 --heads 4 --b 2 --topk 70",
    "sparse_prefill": "--len 300 --heads 4 --s-q 5 --topk 70 --ragged",
    "dense_prefill": "--b 2 --len 90 --s-q 70 --heads 4 --kv-heads 2 --ragged",
    "dense_prefill_backward": "--b 2 --len 50 --s-q 40 --heads 4 --kv-heads 2 --ragged",
    "absorb_query": "--b 5 --s-q 2 --heads 3 --kv-lora-rank 96", "project_output": "--b 5 --s-q 2 --heads 3 --head-dim 64",
    "append": "--len 300", "gather": "--len 300", "convert": "--len 300", "copy_pages": "--len 300", "merge": "--b 5 --parts 3 --s-q 2 --heads 4",
}
WITH_FORMATS = {"decode_formats", "sparse_decode", "append", "gather", "copy_pages"}
FORMATS = {"bf16", "fp16", "fp8_flat", "fp8_656", "fp8_584"}


def operations(flashmla):
    """What --help of bench lists, decode aside."""
    listed = flashmla("bench --help").out.split("Operations, and the sizes that each has:\n")[1].split("\n\n")[0]
    return set(re.findall(r"^  (\w+) ", listed, re.MULTILINE)) - {"decode"}


def test_every_operation_is_tested_here(flashmla):
    assert operations(flashmla) == set(SIZES)


@pytest.mark.parametrize("operation", SIZES)
def test_verify(flashmla, operation):
    words = f"verify {operation} --device cpu --cases 12 --seed 3 --max-length 600 --json"
    done = flashmla(words)
    assert done.code == 0, done.out
    document = done.json
    assert document["operation"] == operation
    assert document["passed"] + document["skipped"] == 12
    assert document["passed"] >= 6
    assert document["rows"] > 0
    assert document["failure"] is None
    assert 0 <= document["worst_share_of_bound"] <= 1
    assert flashmla(words).json == document  # a function of the seed


@pytest.mark.parametrize("operation", SIZES)
def test_bench(flashmla, operation, tmp_path):
    receipt = tmp_path / "receipt.json"
    done = flashmla(f"bench {operation} --device cpu --samples 2 --hot {SIZES[operation]} --output {receipt} --json")
    assert done.code == 0, done.err
    document = json.loads(receipt.read_text())
    assert document == done.json
    assert document["ceilings"]["copy_gbps"] > 0
    records = document["records"]
    cases = [record["case"] for record in records]
    assert len(cases) == len(set(cases))  # sizes that the options made equal are measured once
    for record in records:
        assert record["operation"] == operation
        assert record["passed"] is True
        assert record["ms"] > 0 and record["gbps"] > 0
        assert 0 < record["share_of_roofline"] == max(record["share_of_peak_tflops"], record["share_of_copy_gbps"])
        assert math.isclose(record["share_of_copy_gbps"], record["gbps"] / document["ceilings"]["copy_gbps"])
    if operation in WITH_FORMATS:
        assert {record["format"] for record in records} == FORMATS


def test_rates_count_what_the_operation_does(flashmla):
    record = flashmla("bench sparse_decode --device cpu --samples 1 --hot --len 400 --heads 4 --b 2 --s-q 2 --topk 96 "
                      "--format fp8_656 --json").json["records"][0]
    assert math.isclose(record["tflops"] * record["ms"] * 1e9, 2 * 2 * 2 * 4 * 96 * (576 + 512))
    bytes_moved = 2 * 192 * 656 + 2 * 2 * 4 * (576 + 512) * 2
    assert math.isclose(record["gbps"] * record["ms"] * 1e6, bytes_moved)
    record = flashmla("bench append --device cpu --samples 1 --hot --len 100 --format fp8_656 --json").json["records"][0]
    assert math.isclose(record["gbps"] * record["ms"] * 1e6, 100 * (576 * 2 + 656 + 4))


def flops_of(flashmla, words):
    record = flashmla(f"bench {words} --device cpu --samples 1 --hot --json").json["records"][0]
    return record["tflops"] * record["ms"] * 1e9


def test_flops_of_prefill_count_visible_pairs(flashmla):
    sizes = "--b 2 --s-q 20 --len 50 --heads 4 --kv-heads 2 --d-qk 192"
    pairs = 2 * 4 * sum(50 - 20 + i + 1 for i in range(20))
    assert math.isclose(flops_of(flashmla, f"dense_prefill {sizes} --causal"), 2 * pairs * (192 + 128))
    assert math.isclose(flops_of(flashmla, f"dense_prefill_backward {sizes} --causal"), 2 * pairs * (3 * 192 + 2 * 128))
    assert math.isclose(flops_of(flashmla, "sparse_prefill --s-q 3 --len 100 --topk 40 --heads 4"), 2 * 3 * 40 * 4 * (576 + 512))
    assert math.isclose(flops_of(flashmla, "absorb_query --b 3 --s-q 2 --heads 4 --head-dim 64"), 2 * 6 * 4 * 64 * 512)


def test_text(flashmla):
    text = flashmla("bench convert --device cpu --samples 1 --hot --len 64 --to fp8_656 --format bf16").out
    assert "format bf16, to fp8_656, b 1, len 64" in text
    assert "roof" in text and "%" in text
    text = flashmla("bench merge --device cpu --samples 1 --hot --b 3 --s-q 2 --heads 4").out
    assert "every case: dtype bfloat16, b 3, h_q 4, s_q 2, d_v 512\n" in text
    assert re.search(r"^parts 2  +\d", text, re.MULTILINE) and re.search(r"^parts 8  +\d", text, re.MULTILINE)
    text = flashmla("verify merge --device cpu --cases 3 --seed 1").out
    assert "merge: random cases" in text and "3 cases" in text


@pytest.mark.parametrize("words, complaint", [
    ("bench merge --topk 5", "--topk: merge has none"), ("bench append --causal", "--causal: append has none"),
    ("bench gather --suite dense", "--suite: of decode alone"), ("bench gather --batch-invariant", "--batch-invariant: of decode alone"),
    ("bench merge --b 2 --threads 1", "--threads: merge has no plan"), ("bench append --ragged", "--ragged: append has none"), ("bench merge --head-dim 64", "--head-dim: merge has none"), ("bench --format fp8_656", "decode_formats"),
    ("bench nonsense", "nonsense"), ("verify nonsense", "there is no 'nonsense'; there are decode, decode_formats"),
    ("verify merge --batch-invariant", "--batch-invariant: of decode alone"), ("verify merge --case {}", "--case: of decode alone"),
])
def test_options_that_mean_nothing_are_refused(flashmla, words, complaint):
    done = flashmla(f"{words} --device cpu")
    assert done.code == 2
    assert complaint in done.err
