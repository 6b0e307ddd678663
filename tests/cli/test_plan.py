"""`flashmla plan`: choices, reasons, a schedule that covers everything once."""

import collections
import math

import pytest


def test_h200_anywhere(flashmla):
    document = flashmla("plan --gpu h200 --json").json
    assert document["kernel"] == "sm90_decode_dense"
    assert document["device"]["num_processors"] == 132
    assert [v["kernel"] for v in document["verdicts"] if v["chosen"]] == ["sm90_decode_dense"]
    assert all(v["reason"] for v in document["verdicts"])
    kernels = flashmla("info --json").json["kernels"]
    assert {v["kernel"] for v in document["verdicts"]} == {k["name"] for k in kernels if k["operation"] == "decode"}
    assert document["lengths"] == [450, 18200, 3100]


@pytest.mark.parametrize("options", [
    "--gpu h200", "--gpu h200 --heads 16", "--gpu h200 --s-q 3 --causal --heads 64", "--gpu h200 --batch-invariant",
    "--gpu h200 --workers 7", "--device cpu", "--device cpu --s-q 5 --causal --heads 20",
])
def test_schedule_covers_every_tile_once(flashmla, options):
    document = flashmla(f"plan {options} --lengths 450,18200,0,3100,1,64 --json").json
    schedule = document["schedule"]
    shape = document["shape"]
    spans = collections.defaultdict(list)
    for worker in schedule["workers"]:
        cost = 0
        for piece in worker["pieces"]:
            cost += schedule["visit_cost"] + piece["key_tile_end"] - piece["key_tile_begin"]
            for tile in range(piece["first_row_tile"], piece["first_row_tile"] + piece["row_tiles"]):
                spans[piece["request"], tile].append((piece["key_tile_begin"], piece["key_tile_end"]))
        assert cost == worker["cost"] <= schedule["cost_bound"]
    assert set(spans) == {(i, t) for i in range(6) for t in range(schedule["row_tiles"])}
    for (request, tile), pieces in spans.items():
        assert pieces[0][0] == 0
        for before, after in zip(pieces, pieces[1:]):
            assert before[1] == after[0]
        keys = document["lengths"][request]
        whole = math.ceil(keys / schedule["key_tile_tokens"])
        assert pieces[-1][1] == whole or (shape["causal"] and pieces[-1][1] <= whole)


def test_cost(flashmla):
    document = flashmla("plan --gpu h200 --lengths 8192,100 --json").json
    cost = document["cost"]
    assert cost["kv_bytes"] == 8292 * 576 * 2
    assert cost["flops"] == 2 * 128 * 8292 * 1088
    device = document["device"]
    assert math.isclose(cost["memory_ms"],
                        (cost["kv_bytes"] + cost["q_bytes"] + cost["out_bytes"]) / device["memory_gbps"] / 1e6)
    assert math.isclose(cost["roofline_ms"], max(cost["memory_ms"], cost["compute_ms"]))


def picture_rows(text):
    rows = [line for line in text.splitlines() if line.strip() and line.split()[0].isdigit()]
    assert len(rows) == 5
    return rows


def test_picture_has_a_row_a_worker(flashmla):
    rows = picture_rows(flashmla("plan --gpu h200 --workers 5 --lengths 6400,6400").out)
    assert "a" in rows[0] and "b" in rows[4]
    assert all("+" in row for row in rows)


def test_picture_of_whole_units(flashmla):
    # Ten key tiles each: splitting them would save less than it costs.
    rows = picture_rows(flashmla("plan --gpu h200 --workers 5 --lengths 640,640").out)
    assert ["a" in row for row in rows] == [True, False, False, False, False]
    assert ["b" in row for row in rows] == [False, True, False, False, False]
    assert not any("+" in row for row in rows)


def test_many_workers_become_a_histogram(flashmla):
    text = flashmla("plan --gpu h200").out
    counts = [int(line.split()[-2].replace(",", "")) for line in text.splitlines() if line.startswith("  cost ")]
    assert sum(counts) == flashmla("plan --gpu h200 --json").json["num_workers"]


def test_empty_batch_entries(flashmla):
    assert flashmla("plan --gpu h200 --lengths 0,0").code == 0
