"""`flashmla simulate`: the published figures, and a parity check that compares what it says."""

import math

RESULT_KEYS = ["batch_size", "context_len", "total_tokens_evaluated", "mha_memory_mb", "flashmla_memory_mb",
               "memory_reduction_ratio", "numerical_max_error", "mathematical_parity"]
ONE_HEAD = "--parity-requests 1 --parity-heads 1"


def test_full_size_traffic(flashmla):
    document = flashmla(f"simulate --json {ONE_HEAD}").json
    result = document["result"]
    assert list(result) == RESULT_KEYS
    assert result["batch_size"] == 8
    assert result["context_len"] == 8192
    assert result["total_tokens_evaluated"] == 65536
    assert result["mha_memory_mb"] == 4096.0
    assert result["flashmla_memory_mb"] == 72.0
    assert math.isclose(result["memory_reduction_ratio"], 32768 / 576)
    assert 0 < result["numerical_max_error"] < 1e-5
    assert result["mathematical_parity"] is True
    assert document["parity"]["requests_compared"] == 1
    assert document["parity"]["heads_compared"] == 1
    # The comparison means something only when the outputs are much larger than the limit.
    assert document["parity"]["output_rms"] > 1000 * document["parity"]["limit"]


def test_text(flashmla):
    text = flashmla(f"simulate {ONE_HEAD}").out
    for line in ("128 heads x 128 dims, latent 512, rope 64, page 64; batch 8, context 8,192 tokens",
                 "Standard MHA KV Read Traffic        4,096.0 MB", "FlashMLA Latent Read Traffic           72.0 MB",
                 "56.9x     98.2% less to read", "93.3% compares with another baseline", "PASS",
                 "only the first 1 request x 1 head x 8,192 tokens (of 8 requests, 128 heads)"):
        assert line in text


def test_small_case_compares_everything(flashmla):
    done = flashmla("simulate --heads 4 --head-dim 32 --latent 64 --rope 16 --batch 2 --context 300 --json")
    assert done.code == 0
    result = done.json["result"]
    assert result["mha_memory_mb"] == 2 * 300 * 2 * 4 * 32 * 2 / 2**20
    assert result["flashmla_memory_mb"] == 2 * 300 * 80 * 2 / 2**20
    assert done.json["parity"]["requests_compared"] == 2
    assert done.json["parity"]["heads_compared"] == 4


def test_threads_do_not_change_the_numbers(flashmla):
    small = "simulate --heads 4 --latent 64 --batch 2 --context 300 --json --threads"
    assert flashmla(f"{small} 1").json["result"] == flashmla(f"{small} 3").json["result"]


def test_roofline_is_bytes_and_flops_over_rates(flashmla):
    document = flashmla(f"simulate --json {ONE_HEAD}").json
    roofline = document["roofline"]
    for side in ("mha", "flashmla"):
        step = roofline[side]
        assert math.isclose(step["memory_ms"], step["bytes"] / roofline["memory_gbps"] / 1e6)
        assert math.isclose(step["compute_ms"], step["flops"] / roofline["matrix_tflops"] / 1e9)
        assert step["ms"] == max(step["memory_ms"], step["compute_ms"])
    assert roofline["mha"]["bytes"] == 4096 * 2**20
    assert roofline["flashmla"]["flops"] == 2 * 65536 * 128 * (576 + 512)


def test_toy_sizes_where_the_latent_cache_is_the_larger_one(flashmla):
    text = flashmla("simulate --heads 1 --head-dim 64 --latent 512 --rope 64 --batch 1 --context 64").out
    assert "0.22x     350.0% MORE to read" in text
    assert "0.22x, as the bytes: the latent form does 2 FLOP" in text
    assert "not 56.9x, because the latent form does 242 FLOP" in flashmla(f"simulate {ONE_HEAD}").out
