"""vLLM's dispatching module as published, on this library; and the published signatures of all three engines' modules."""

import ast
import importlib
import inspect
import os
import pathlib
import sys

import pytest
import torch
from torch_cases import TorchCase, bits

import flash_mla
from flash_mla import _sgl
from flashmla.integrations import sglang, vllm

ENGINES = pathlib.Path(os.environ["FLASHMLA_ENGINES"])
DISPATCHER = "vllm.v1.attention.ops.flashmla"


@pytest.fixture(autouse=True)
def engines(monkeypatch):
    monkeypatch.syspath_prepend(ENGINES)
    yield
    vllm.uninstall()
    sglang.uninstall()


@pytest.mark.parametrize("imported_before", [True, False])
def test_vllm(imported_before):
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]
    if imported_before:
        dispatcher = importlib.import_module(DISPATCHER)
        assert not dispatcher._is_flashmla_available()[0]  # the wheel's extensions are not unpacked
    vllm.install()
    dispatcher = importlib.import_module(DISPATCHER)
    assert dispatcher._is_flashmla_available() == (True, None)
    case = TorchCase([300, 5, 0, 64], "cpu", s_q=2, causal=True)
    metadata, _ = dispatcher.get_mla_metadata(case.cache_seqlens, 32, 1, is_fp8_kvcache=False)
    assert isinstance(metadata, dispatcher.FlashMLASchedMeta)
    out, lse = dispatcher.flash_mla_with_kvcache(*case.inputs, 512, metadata, causal=True)
    wanted = case.run()
    assert bits(out) == bits(wanted[0]) and bits(lse) == bits(wanted[1])
    q, cache, one = case.q.to(torch.float8_e4m3fn), case.k_cache.to(torch.float8_e4m3fn), torch.ones(1)
    table, num_splits = dispatcher.get_mla_metadata_dense_fp8(case.cache_seqlens, 32, 1)
    arguments = q, cache, case.block_table, case.cache_seqlens, 512, table, num_splits, 0.05, True, one, one
    fp8, _ = dispatcher.flash_mla_with_kvcache_fp8(*arguments)
    assert bits(fp8) == bits(flash_mla.flash_mla_with_kvcache_fp8(*arguments)[0])
    vllm.uninstall()
    with pytest.raises(RuntimeError):
        dispatcher.flash_mla_with_kvcache(*case.inputs, 512, metadata)


def published(file):
    """{function: its parameters} of a module's public functions."""
    found = {}
    for node in ast.parse((ENGINES / file).read_text()).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            found[node.name] = [a.arg for a in node.args.args], [a.arg for a in node.args.kwonlyargs]
    return found


@pytest.mark.parametrize(
    "file, module, missing",
    [
        ("vllm/third_party/flashmla/flash_mla_interface.py", flash_mla.flash_mla_interface, set()),
        ("vllm/v1/attention/ops/flashmla.py", flash_mla, {"is_flashmla_dense_supported", "is_flashmla_sparse_supported"}),
        ("sgl_kernel/flash_mla.py", _sgl, set()),
        # fused normalisation, rotation and attention of a newer release: another operation
        ("sglang/kernels/ops/attention/flash_mla_interface.py", _sgl, {"flash_mla_mega_prefill", "flash_mla_mega_decode"}),
    ],
)
def test_signatures(file, module, missing):
    """Each published function is there and takes the published parameters, in the published order."""
    functions = published(file)
    assert len(functions) > 2
    assert {name for name in functions if not hasattr(module, name)} == missing
    for name in functions.keys() - missing:
        positional, keywords = functions[name]
        # vLLM's last one, which nothing in its wheel passes: batch invariance is a switch of the whole process here
        positional = [p for p in positional if p != "enable_batch_invariant"]
        parameters = inspect.signature(getattr(module, name)).parameters
        if any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
            continue  # get_mla_metadata(*args, **kwargs)
        assert list(parameters)[: len(positional)] == positional, name
        assert set(keywords) <= set(parameters), name


def test_sglang():
    """sgl_kernel itself does not import without a GPU; its module by name is ours, whoever imports it."""
    sglang.install()
    from sgl_kernel.flash_mla import flash_mla_with_kvcache

    assert flash_mla_with_kvcache is _sgl.flash_mla_with_kvcache
