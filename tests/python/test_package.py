"""The package as such: import, facts, planning, capability, the simulator, types."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import flashmla

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_python(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env={**os.environ, **environment}, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_import_is_light_and_silent():
    """No framework is imported, nothing is printed, also without a GPU."""
    code = "import sys, flashmla; print(sorted({'torch', 'numpy', 'cupy', 'jax', 'ml_dtypes'} & set(sys.modules)))"
    assert run_python("-c", code, CUDA_VISIBLE_DEVICES="") == "[]\n"


def test_info():
    facts = flashmla.info()
    header = (ROOT / "include/flashmla/version.h").read_text()
    assert facts["version"] == flashmla.__version__ == re.search(r'VERSION_STRING "(.*)"', header)[1]
    assert "portable" in facts["cpu_paths"] and facts["compiler"] and facts["git_revision"]
    assert facts["devices"][0]["type"] == "cpu" and facts["devices"][0]["num_processors"] >= 1
    assert {kernel["name"] for kernel in facts["kernels"]} >= {"cpu_decode_dense", "sm90_decode_dense"}


def test_plan():
    plan = flashmla.plan(64, max_pages=128)
    assert plan.kernel == "cpu_decode_dense" and plan.device["type"] == "cpu" and not plan.batch_invariant
    assert [name for name, chosen, _ in plan.verdicts if chosen] == [plan.kernel]
    assert all(reason for _, _, reason in plan.verdicts) and plan.reason


def test_plan_for_hardware_that_is_not_here():
    plan = flashmla.plan(64, max_pages=128, device="h200", batch_invariant=True)
    assert plan.kernel == "sm90_decode_dense" and plan.device["arch"] == "sm_90" and plan.batch_invariant
    assert plan.workspace_bytes > 0 and plan.num_workers > 1


@pytest.mark.parametrize(
    "error, match, arguments",
    [
        (ValueError, "h_q", dict(h_q=3, h_kv=2)),
        (ValueError, "dtype", dict(dtype="float32")),
        (ValueError, "dtype", dict(dtype="banana")),
        (ValueError, "b", dict(b=-1)),
        (ValueError, "device", dict(device="cuda:99999")),
        (ValueError, "h200", dict(device="banana")),
        (NotImplementedError, "page", dict(device="h200", page_size=16)),
    ],
)
def test_plan_refuses(error, match, arguments):
    with pytest.raises((error, NotImplementedError), match=match):
        flashmla.plan(**{"b": 1, "max_pages": 4, **arguments})


def test_capability():
    yes = flashmla.capability("decode", dtype="float16", h_q=12, s_q=5)
    assert yes and yes.kernel == "cpu_decode_dense" and yes.reason
    assert not flashmla.capability("decode", h_q=3, h_kv=2)
    no = flashmla.capability("prefill")
    assert not no and "prefill" in no.reason and "dense_prefill" in no.reason and "decode" in no.reason
    with pytest.raises(TypeError, match="banana"):
        flashmla.capability("decode", banana=1)


@pytest.mark.parametrize(
    "operation",
    ["decode", "sparse_prefill", "dense_prefill", "dense_prefill_backward", "append", "gather", "copy_pages", "convert", "merge",
     "absorb"],
)
def test_capability_of_every_operation(operation):
    """All of them run on the CPU, and say so; what does not run on a GPU yet says which kernels there are or what was wanted."""
    assert flashmla.capability(operation)
    answer = flashmla.capability(operation, device="h200")
    assert answer or answer.reason
    assert not flashmla.capability(operation, dtype="int32")
    with pytest.raises(TypeError, match="banana"):
        flashmla.capability(operation, banana=1)


def test_capability_of_sparse_decode_and_formats():
    for format in ("bf16", "fp16", "fp8_flat", "fp8_656", "fp8_584"):
        dims = dict(dtype="float16" if format == "fp16" else "bfloat16", d_qk=512 if format == "fp8_584" else 576, format=format)
        assert flashmla.capability("decode", topk=2048, attn_sink=True, **dims), format
    assert not flashmla.capability("decode", format="fp8_584", d_qk=576)


def test_plan_prefill():
    plan = flashmla.plan_prefill(total_q=4096, total_kv=4096, causal=True)
    assert plan.kernel == "cpu_dense_prefill" and plan.num_workers >= 1 and plan.device["type"] == "cpu"
    assert [name for name, chosen, _ in plan.verdicts if chosen] == [plan.kernel]
    sparse = flashmla.plan_prefill("sparse_prefill", total_q=4096, total_kv=8192, topk=2048)
    assert sparse.kernel == "cpu_sparse_prefill"


@pytest.mark.parametrize(
    "match, arguments",
    [
        ("operation", dict(operation="prefill")),
        ("total_q", dict(total_q=1.5)),
        ("h_kv", dict(h_q=3, h_kv=2)),
        ("dtype", dict(dtype="banana")),
        ("num_workers", dict(num_workers=-1)),
    ],
)
def test_plan_prefill_refuses(match, arguments):
    with pytest.raises(ValueError, match=match):
        flashmla.plan_prefill(**{"total_q": 4, "total_kv": 4, **arguments})


def test_capability_tells_a_plan_from_a_build():
    """A kernel that this build was made without can be planned, not run."""
    built = next(k["built"] for k in flashmla.info()["kernels"] if k["name"] == "sm90_decode_dense")
    answer = flashmla.capability("decode", device="h200")
    assert bool(answer) == built and (built or "without it" in answer.reason)


def test_simulator():
    simulator = flashmla.FlashMLADecodingSimulator(num_heads=16, head_dim=32, latent_dim=64, rope_dim=16, page_block_size=16)
    result = simulator.simulate_decoding_step(batch_size=2, context_len=300)
    assert list(result) == [
        "batch_size",
        "context_len",
        "total_tokens_evaluated",
        "mha_memory_mb",
        "flashmla_memory_mb",
        "memory_reduction_ratio",
        "numerical_max_error",
        "mathematical_parity",
    ]
    assert result["total_tokens_evaluated"] == 600
    assert result["mha_memory_mb"] == 600 * 2 * 16 * 32 * 2 / 2**20
    assert result["flashmla_memory_mb"] == 600 * (64 + 16) * 2 / 2**20
    assert result["memory_reduction_ratio"] == pytest.approx(2 * 16 * 32 / 80)
    assert 0 < result["numerical_max_error"] < 1e-5 and result["mathematical_parity"] is True
    assert simulator.simulate_decoding_step(2, 300) == result


@pytest.mark.parametrize("arguments", [(0, 10), (1, -1), (1.5, 10), (2**62, 2**62)])
def test_simulator_refuses(arguments):
    with pytest.raises(ValueError):
        flashmla.FlashMLADecodingSimulator().simulate_decoding_step(*arguments)


def test_types():
    """Both packages pass mypy, strict by pyproject.toml, and the stub of the extension module names exactly what is there."""
    pytest.importorskip("mypy")
    run_python("-m", "mypy", "--cache-dir", os.devnull, "python/flashmla", "python/flash_mla")
    stub = (ROOT / "python/flashmla/_core.pyi").read_text()
    declared = set(re.findall(r"^(?:def|class) ([a-zA-Z]\w*)", stub, re.M))
    from flashmla import _core

    assert declared == {name for name in dir(_core) if not name.startswith("__")}


def test_example():
    assert "largest difference" in run_python("examples/decode.py")


def test_kernels():
    rows = {row["name"]: row for row in flashmla.kernels()}
    cpu, gpu = rows["cpu_decode_dense"], rows["sm90_decode_dense"]
    assert cpu["operation"] == "decode" and not cpu["sparse"] and cpu["built"] and cpu["device"] == "cpu"
    assert {"bfloat16", "float16"} <= set(cpu["dtypes"]) and {"bf16", "fp16"} <= set(cpu["cache_formats"])
    assert (576, 512) in cpu["dims"] and cpu["page_size"] == 0
    assert gpu["device"] == "cuda" and gpu["compute_capability"] == 90 and gpu["page_size"] == 64
