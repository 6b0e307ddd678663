"""`flashmla info`: build facts, devices, kernels; the README's table comes from it."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_document(flashmla):
    document = flashmla("info --json").json
    assert set(document["build"]) == {"version", "git_revision", "source_hash", "compiler", "cuda_toolkit",
                                      "cuda_architectures", "cpu_paths"}
    assert document["build"]["cpu_paths"].split(",")[-1] == "portable"
    assert document["devices"][0]["device"] == "cpu"
    assert document["devices"][0]["num_processors"] >= 1
    kernels = {kernel["name"]: kernel for kernel in document["kernels"]}
    assert {"d_qk": 576, "d_v": 512} in kernels["sm90_decode_dense"]["dims"]
    assert kernels["cpu_decode_dense"]["built"] is True


def test_markdown_lists_every_kernel(flashmla):
    lines = flashmla("info --markdown").out.splitlines()
    names = [kernel["name"] for kernel in flashmla("info --json").json["kernels"]]
    assert lines[0].startswith("| kernel |")
    assert [line.split("`")[1] for line in lines[2:]] == names
    assert len({line.count("|") for line in lines}) == 1


def test_forced_cpu_path_is_reported(flashmla):
    document = flashmla("info", "--json", env={"FLASHMLA_CPU_ISA": "portable"}).json
    assert document["devices"][0]["arch"] == "portable"


def test_source_hash_is_that_of_the_tree(flashmla):
    spec = importlib.util.spec_from_file_location("source_hash", ROOT / "bench/source_hash.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert flashmla("info --json").json["build"]["source_hash"] == module.source_hash()
