"""flashmla.integrations: vLLM's and SGLang's call patterns on stand-ins of their packages."""

import importlib
import pathlib
import sys

import numpy as np
import pytest
import torch
from sparse_cases import SparseCase
from torch_cases import TorchCase, bits

import flash_mla
from flashmla.integrations import sglang, vllm

PACKAGES = ("vllm", "sgl_kernel", "sglang")


def loaded():
    return [name for name in sys.modules if name.partition(".")[0] in PACKAGES]


@pytest.fixture(autouse=True)
def engines(monkeypatch):
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parent / "standins")
    importlib.invalidate_caches()
    assert not loaded()
    yield
    vllm.uninstall()
    sglang.uninstall()
    for name in loaded():
        del sys.modules[name]


VLLM_BACKEND = "vllm.v1.attention.backends.flashmla"
SGLANG_BACKEND = "sglang.srt.layers.attention.flashmla_backend"


@pytest.fixture(params=["before", "after"])
def backend(request):
    """vLLM's backend module, imported before or after install()."""
    if request.param == "before":
        importlib.import_module(VLLM_BACKEND)
    vllm.install()
    return importlib.import_module(VLLM_BACKEND)


def engine_case(lengths, **options):
    """A case whose cache the engine keeps without a head axis, and its queries without a request axis."""
    case = TorchCase(lengths, "cpu", **options)
    return case, case.q.flatten(0, 1), case.k_cache.squeeze(2)


@pytest.mark.parametrize("batch_invariant", [False, True])
@pytest.mark.parametrize("query_len", [1, 3])
def test_vllm_dense(backend, query_len, batch_invariant):
    """Only the first value of the metadata is kept; a hand-written (1, 8) table; a length-0 slot."""
    case, q, cache = engine_case([300, 5, 0, 64], s_q=query_len, causal=True, softmax_scale=192**-0.5)
    engine = backend.Backend(16, 32, batch_invariant=batch_invariant)
    metadata = engine.build(case.cache_seqlens, query_len)
    for _ in range(2):  # layers share it
        out, lse = engine.forward(q, cache, case.block_table, case.cache_seqlens, metadata, 192**-0.5)
        wanted = case.run()
        assert bits(out) == bits(wanted[0]) and bits(lse) == bits(wanted[1])
    case.run_and_check()


def test_vllm_prompt_on_the_decode_path(backend):
    """Field case 49: prompts of up to 128 tokens."""
    case, q, cache = engine_case([128, 130], s_q=128, h_q=2, causal=True)
    engine = backend.Backend(2, 8)
    metadata = engine.build(case.cache_seqlens, 128)
    out, _ = engine.forward(q, cache, case.block_table, case.cache_seqlens, metadata, 576**-0.5)
    assert bits(out) == bits(case.run()[0])


def flat_case(lengths, s_q=1, h_q=16, k_scale=0.5):
    """An e4m3 cache beside the 16-bit one it was made from, and e4m3 queries."""
    case = TorchCase(lengths, "cpu", s_q=s_q, h_q=h_q, causal=True)
    cache = (case.k_cache.float() / k_scale).to(torch.float8_e4m3fn)
    return case, case.q.to(torch.float8_e4m3fn), cache


def flat_wanted(case, q, cache, q_scale, k_scale, softmax_scale):
    """By exactly dequantised 16-bit tensors: powers of two keep e4m3 values exact in bfloat16."""
    return flash_mla.flash_mla_with_kvcache(
        (q.float() * q_scale).bfloat16(),
        (cache.float() * k_scale).bfloat16(),
        case.block_table,
        case.cache_seqlens,
        512,
        *flash_mla.get_mla_metadata(),
        softmax_scale=softmax_scale,
        causal=True,
    )


def assert_close(out, wanted):
    assert out.dtype == torch.bfloat16 and torch.allclose(out.float(), wanted.float(), rtol=2**-7, atol=2**-9)


def test_vllm_fp8_with_graph_buffers(backend):
    """Buffers for the largest batch, refreshed by copy_, sliced to this one; scales as one-element tensors."""
    engine = backend.Backend(16, 64, is_fp8=True)
    for lengths in ([300, 5, 0, 64], [70], [1] * 9):
        case, q, cache = flat_case(lengths)
        metadata = engine.build(case.cache_seqlens, 1)
        assert metadata.num_splits.data_ptr() == engine.splits_buffer.data_ptr()
        q_scale, k_scale = torch.tensor(0.25), torch.tensor([0.5])
        out, lse = engine.forward(
            q.flatten(0, 1), cache.squeeze(2), case.block_table, case.cache_seqlens, metadata, 192**-0.5, q_scale, k_scale
        )
        wanted, wanted_lse = flat_wanted(case, q, cache, 0.25, 0.5, 192**-0.5)
        assert_close(out, wanted)
        assert torch.allclose(lse, wanted_lse, rtol=1e-5, atol=1e-5)


def test_vllm_operators(backend):
    """Those who call torch.ops._flashmla_extension_C themselves; and tracing through it."""
    case, q, cache = flat_case([300, 5])
    ops = torch.ops._flashmla_extension_C

    def step(q, cache, table, lengths):
        metadata, num_splits = ops.get_mla_decoding_metadata_dense_fp8(lengths, 16, 1)
        return ops.fwd_kvcache_mla_fp8(q, cache, 512, lengths, table, 0.05, True, metadata, num_splits, None, None)

    out, _ = step(q, cache, case.block_table, case.cache_seqlens)
    assert_close(out, flat_wanted(case, q, cache, 1, 1, 0.05)[0])
    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert bits(compiled(q, cache, case.block_table, case.cache_seqlens)[0]) == bits(out)


def test_vllm_sparse(backend):
    """All tokens as one request, heads padded, one object for all layers."""
    engine = backend.SparseBackend()
    case = SparseCase("fp8_656", b=1, s_q=5, h_q=8, topk=64)
    for _ in range(2):
        out, lse = engine.decode(case.q[0], case.k_cache.squeeze(2), case.more["indices"][0], 576**-0.5)
        case.check(out[None], lse.transpose(0, 1)[None])


@pytest.mark.parametrize("with_extra", [True, False])
def test_vllm_windowed(backend, with_extra):
    engine = backend.SparseBackend()
    extra = dict(topk=64, topk_length=[64, 0, 9]) if with_extra else None
    case = SparseCase("fp8_584", b=3, h_q=4, topk=32, topk_length=[32, 1, 0], sink=np.linspace(-1, 1, 4), extra=extra)
    output = torch.full((3, 4, 512), float("nan"), dtype=torch.bfloat16)
    caches = case.more.get("extra_k_cache"), case.more.get("extra_indices_in_kvcache"), case.more.get("extra_topk_length")
    engine.decode_windowed(
        case.q[:, 0],
        case.k_cache.squeeze(2),
        case.more["indices"],
        case.more["topk_length"],
        case.more["attn_sink"],
        None if caches[0] is None else caches[0].squeeze(2),
        *caches[1:],
        512**-0.5,
        output,
    )
    assert bits(output) == bits(case.run()[0])
    case.run_and_check()


def test_vllm_sparse_prefill(backend):
    random = torch.Generator().manual_seed(0)
    q = torch.randn(9, 4, 576, generator=random).bfloat16()
    kv = torch.randn(5, 8, 576, generator=random).bfloat16()  # a paged workspace, seen flat
    indices = torch.randint(-3, 43, (9, 16), generator=random, dtype=torch.int32)
    lengths = torch.arange(9, dtype=torch.int32)
    output = torch.full((12, 4, 512), float("nan"), dtype=torch.bfloat16)
    backend.SparseBackend().prefill(q, kv, indices, 0.05, lengths, torch.zeros(4), output[2:11])
    wanted, _, _ = flash_mla.flash_mla_sparse_fwd(
        q, kv.view(40, 1, 576), indices[:, None], 0.05, attn_sink=torch.zeros(4), topk_length=lengths
    )
    assert bits(output[2:11]) == bits(wanted) and output[[0, 1, 11]].isnan().all()


def test_vllm_names(backend):
    """Only what came from the vendored copy is replaced, and everything goes back."""
    from vllm.third_party.flashmla.flash_mla_interface import flash_mla_with_kvcache

    assert flash_mla_with_kvcache is flash_mla.flash_mla_with_kvcache is backend.flash_mla_with_kvcache
    assert sys.modules["vllm.third_party.flashmla"] is flash_mla
    assert backend.flash_attn_varlen_func == "another library's function of the same name"
    dispatcher = sys.modules["vllm.v1.attention.ops.flashmla"]
    assert dispatcher._is_flashmla_available() == (True, None)
    vllm.install()  # once more changes nothing
    vllm.uninstall()
    assert not dispatcher._is_flashmla_available()[0]
    with pytest.raises(RuntimeError, match="_flashmla_C"):
        dispatcher.flash_mla_with_kvcache()
    assert "vllm.third_party.flashmla.flash_mla_interface" not in sys.modules
    assert not hasattr(torch.ops._flashmla_extension_C, "fwd_kvcache_mla_fp8")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("vllm.third_party.flashmla.flash_mla_interface")


def test_vllm_users_are_restored():
    backend = importlib.import_module(VLLM_BACKEND)
    before = dict(vars(backend))
    vllm.install()
    assert backend.get_mla_metadata is flash_mla.get_mla_metadata
    vllm.uninstall()
    assert {name: vars(backend)[name] for name in before} == before


@pytest.fixture(params=["before", "after"])
def sgl_backend(request):
    if request.param == "before":
        importlib.import_module(SGLANG_BACKEND)
    sglang.install()
    return importlib.import_module(SGLANG_BACKEND)


@pytest.mark.parametrize("query_len", [1, 2])
def test_sglang_dense(sgl_backend, query_len):
    """Fresh metadata, then static buffers refreshed for batches of several sizes; junk (-1) past a request's pages."""
    engine = sgl_backend.Backend(16, 9, 16)
    for lengths in ([300, 5, 2, 64], [70], [100 + i for i in range(9)]):
        case = TorchCase(lengths, "cpu", s_q=query_len, causal=True)
        wanted, wanted_lse = case.run()
        arguments = case.q.reshape(-1, 16 * 576), case.k_cache.view(-1, 1, 576)
        out, lse = engine.forward(
            *arguments, case.block_table, case.cache_seqlens.long(), *engine.metadata(case.cache_seqlens, query_len), 576**-0.5
        )
        assert bits(out) == bits(wanted) and bits(lse) == bits(wanted_lse)
        buffers = engine.refresh(case.block_table, case.cache_seqlens, query_len)
        out, _ = engine.forward(*arguments, engine.graph_table, case.cache_seqlens, *buffers, 576**-0.5)
        assert bits(out) == bits(wanted)


def test_sglang_fp8(sgl_backend):
    engine = sgl_backend.Backend(16, 9, 16, is_fp8=True)
    case, q, cache = flat_case([300, 5, 64])
    out, _ = engine.forward(
        q.float().reshape(-1, 16 * 576),
        cache.view(-1, 1, 576),
        case.block_table,
        case.cache_seqlens,
        *engine.metadata(case.cache_seqlens),
        192**-0.5,
        torch.tensor(0.5),
    )
    assert_close(out.view(3, 1, 16, 512), flat_wanted(case, q, cache, 0.5, 0.5, 192**-0.5)[0])


def test_sglang_stray_descales(sgl_backend):
    """Field case 65: dispatch by dtype, not by which options are set."""
    case = TorchCase([70, 5], "cpu", causal=True)
    out, _ = sgl_backend.Backend(16, 2, 4).forward_with_stray_descales(*case.inputs)
    assert bits(out) == bits(case.run()[0])


def test_sglang_sparse(sgl_backend):
    case = SparseCase("fp8_656", s_q=2, h_q=4)
    out, lse = sgl_backend.forward_sparse(case.q, case.k_cache, case.more["indices"], 576**-0.5)
    case.check(out, lse)


def test_sglang_sparse_prefill(sgl_backend):
    random = torch.Generator().manual_seed(0)
    q, kv = torch.randn(5, 4, 576, generator=random).bfloat16(), torch.randn(40, 1, 576, generator=random).bfloat16()
    indices = torch.randint(-3, 43, (5, 1, 16), generator=random, dtype=torch.int32)
    out = sgl_backend.prefill_sparse(q, kv, indices, 0.05)
    assert bits(out) == bits(flash_mla.flash_mla_sparse_fwd(q, kv, indices, 0.05)[0])


def test_sglang_names(sgl_backend):
    import sgl_kernel
    from sgl_kernel.flash_mla import flash_mla_with_kvcache
    from sglang.kernels.ops.attention import flash_mla_interface

    assert sgl_kernel.flash_mla_with_kvcache is flash_mla_with_kvcache is sgl_backend.flash_mla_with_kvcache
    assert flash_mla_interface.flash_mla_with_kvcache is flash_mla_with_kvcache
    assert flash_mla_interface.FlashMLASchedMeta is flash_mla.flash_mla_interface.FlashMLASchedMeta
    metadata, nothing = flash_mla_interface.get_mla_metadata()
    assert nothing is None and not metadata.have_initialized


def test_sglang_users_are_restored():
    backend = importlib.import_module(SGLANG_BACKEND)
    before = dict(vars(backend))
    sglang.install()
    assert backend.get_mla_metadata is not before["get_mla_metadata"]
    sglang.uninstall()
    assert {name: vars(backend)[name] for name in before} == before
    with pytest.raises(ImportError, match="flashmla_ops"):
        backend.get_mla_metadata()


@pytest.mark.parametrize("engine", [vllm, sglang])
def test_without_the_engine(engine, monkeypatch):
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "standins" not in p])
    importlib.invalidate_caches()
    with pytest.raises(ImportError, match="not installed"):
        engine.install()
