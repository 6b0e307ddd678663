"""`flashmla verify`: seeded cases, one case again."""

import json

CASE = {"seed": 3, "dtype": "float16", "lengths": [65, 0, 7], "s_q": 2, "h_q": 6, "h_kv": 2, "d_qk": 320, "d_v": 256,
        "page_size": 16, "causal": True, "logit_std": 8.0, "softmax_scale": 0.05, "keys": 1, "pages": 3, "poison": 0,
        "cumulative_lengths": True, "pool_layers": 3, "spare_pages": 1, "spare_columns": 2, "strided_q": True,
        "strided_out": True}


def test_cases_pass(flashmla):
    done = flashmla("verify --device cpu --cases 12 --seed 5 --json")
    assert done.code == 0
    document = done.json
    assert document["passed"] + document["skipped"] == 12
    assert document["passed"] > 0
    assert document["rows"] > 0
    assert 0 < document["worst_share_of_bound"] <= 1
    assert document["failure"] is None


def test_same_seed_same_cases(flashmla):
    first, second = (flashmla("verify --device cpu --cases 4 --seed 9 --json").json for _ in range(2))
    assert first == second


def test_a_new_seed_is_printed(flashmla):
    seeds = {flashmla("verify --device cpu --cases 1 --max-length 50 --json").json["seed"] for _ in range(2)}
    assert len(seeds) == 2


def test_one_case(flashmla):
    done = flashmla("verify", "--device", "cpu", "--json", "--case", json.dumps(CASE))
    assert done.code == 0
    assert done.json["rows"] == 3 * 2 * 6


def test_bad_case_names_the_field(flashmla):
    for key, value in (("keys", 9), ("dtype", "fp8"), ("lengths", [-1]), ("h_q", 5), ("page_size", 0), ("d_v", 400)):
        done = flashmla("verify", "--device", "cpu", "--case", json.dumps({**CASE, key: value}))
        assert done.code == 2, key
        assert "--case" in done.err
