"""`flashmla bench`: records, receipts."""

import json
import math

RECORD_KEYS = {"operation", "kernel", "dtype", "b", "h_q", "s_q", "len", "varlen", "causal", "page", "ms", "tflops", "gbps",
               "rel_error"}
ONE = "bench decode --device cpu --samples 2 --heads 2 --b 3 --len 100"


def test_receipt(flashmla, tmp_path):
    receipt = tmp_path / "receipt.json"
    done = flashmla(f"{ONE} --ragged --s-q 2 --causal --output {receipt} --json")
    assert done.code == 0
    document = json.loads(receipt.read_text())
    assert document == done.json
    assert {"git_revision", "source_hash", "date", "machine", "clocks_before", "clocks_after", "method"} <= set(document)
    (record,) = document["records"]
    assert RECORD_KEYS <= set(record)
    assert (record["b"], record["h_q"], record["s_q"], record["len"], record["page"]) == (3, 2, 2, 100, 64)
    assert record["varlen"] is True and record["causal"] is True
    assert record["passed"] is True
    assert 0 < record["rel_error"] < 0.01
    assert 3 * 2 <= record["total_tokens"] <= 3 * 200
    assert document["ceilings"]["tflops"] > 0
    assert math.isclose(record["share_of_peak_tflops"], record["tflops"] / document["ceilings"]["tflops"])
    assert record["share_of_roofline"] == max(record["share_of_peak_tflops"], record["share_of_copy_gbps"]) > 0
    assert math.isclose(record["tflops"], 2 * 2 * 2 * record["total_tokens"] * 1088 / record["ms"] / 1e9)


def test_equal_lengths(flashmla):
    (record,) = flashmla(f"{ONE} --hot --json").json["records"]
    assert record["total_tokens"] == 300
    assert record["varlen"] is False
    assert record["cache"] == "hot"


def test_lengths_from_a_file_and_a_trace(flashmla, tmp_path):
    lengths = tmp_path / "lengths.json"
    lengths.write_text("[10, 20, 30]")
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_ms,input_tokens,output_tokens\n0,40,1\n5,60,1\n")
    common = "bench --device cpu --samples 1 --heads 1 --json"
    (record,) = flashmla(f"{common} --lengths-file {lengths}").json["records"]
    assert (record["b"], record["total_tokens"], record["len"]) == (3, 60, 20)
    (record,) = flashmla(f"{common} --trace {trace} --requests 2").json["records"]
    assert (record["b"], record["total_tokens"], record["suite"]) == (2, 102, "trace")
