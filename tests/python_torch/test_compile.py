"""torch.compile with fullgraph, export and the registered operators."""

import pytest
import torch
from sparse_cases import SparseCase
from test_sparse_prefill import PrefillCase
from test_varlen import VarlenCase
from torch_cases import TorchCase, bits

import flash_mla

# Inductor runs on CPU tensors alone: it needs a C++ compiler, its first use on a GPU machine took over a minute, and what is
# tested here (the operator, its fake function) does not depend on the backend.
WHERE = [("cpu", "eager"), ("cpu", "aot_eager"), ("cpu", "inductor")]
WHERE += [pytest.param("cuda", backend, marks=pytest.mark.gpu) for backend in ("eager", "aot_eager")]


@pytest.fixture(autouse=True)
def fresh_compiler():
    from torch._inductor import config

    torch._dynamo.reset()
    # Inductor believes /proc/cpuinfo about vector instructions, instead of compiling a program to try each of them.
    with config.patch({"cpp.vec_isa_ok": True}):
        yield
    torch._dynamo.reset()


def new_style(q, k_cache, block_table, cache_seqlens):
    metadata, _ = flash_mla.get_mla_metadata()
    out, lse = flash_mla.flash_mla_with_kvcache(q * 1, k_cache, block_table, cache_seqlens, 512, metadata, causal=True)
    return out * 1, lse


def old_style(q, k_cache, block_table, cache_seqlens):
    metadata, num_splits = flash_mla.get_mla_metadata(cache_seqlens, q.shape[1] * q.shape[2], 1)
    out, lse = flash_mla.flash_mla_with_kvcache(
        q * 1, k_cache, block_table, cache_seqlens, 512, metadata, num_splits, causal=True
    )
    return out * 1, lse


@pytest.mark.parametrize("device, backend", WHERE, indirect=["device"])
@pytest.mark.parametrize("step", [new_style, old_style])
def test_fullgraph(device, backend, step):
    case = TorchCase([70, 5, 0], device, s_q=2, causal=True)
    wanted = case.run()
    out, lse = torch.compile(step, fullgraph=True, backend=backend)(*case.inputs)
    assert bits(out) == bits(wanted[0]) and bits(lse) == bits(wanted[1])


@pytest.mark.parametrize("filled", [False, True])
def test_metadata_made_outside(device, filled):
    case = TorchCase([70, 5, 0], device)
    metadata, _ = flash_mla.get_mla_metadata()
    if filled:
        case.run(metadata, None)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(q, k_cache, block_table, cache_seqlens):
        return flash_mla.flash_mla_with_kvcache(q, k_cache, block_table, cache_seqlens, 512, metadata)[0] + 0

    assert bits(step(*case.inputs)) == bits(case.run()[0])


def test_caller_owned_out(device):
    case = TorchCase([70, 5, 0], device)
    out = torch.full((3, 1, 16, 512), float("nan"), dtype=torch.bfloat16, device=device)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(out, q, k_cache, block_table, cache_seqlens):
        metadata, _ = flash_mla.get_mla_metadata()
        returned, lse = flash_mla.flash_mla_with_kvcache(
            q, k_cache, block_table, cache_seqlens, 512, metadata, softmax_scale=0.05, out=out
        )
        return returned + 0, lse

    returned, lse = step(out, *case.inputs)
    case.options["softmax_scale"] = 0.05
    wanted = case.run()
    assert bits(out) == bits(wanted[0]) == bits(returned) and bits(lse) == bits(wanted[1])


def test_dynamic_batch(device):
    """One graph serves every batch size."""
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    step = torch.compile(new_style, fullgraph=True, backend=backend, dynamic=True)
    for lengths in ([70, 5, 0], [1, 2, 3, 4, 5], [64, 300]):
        case = TorchCase(lengths, device, causal=True)
        assert bits(step(*case.inputs)[0]) == bits(case.run()[0])
    assert len(graphs) == 1


def test_switch_is_part_of_the_graph(device):
    case = TorchCase([70, 5, 0], device, causal=True)
    step = torch.compile(new_style, fullgraph=True, backend="aot_eager")
    for enabled in (False, True, False):
        flash_mla.set_batch_invariant(enabled)
        assert bits(step(*case.inputs)[0]) == bits(case.run()[0])


def test_export(device):
    class Step(torch.nn.Module):
        def forward(self, q, k_cache, block_table, cache_seqlens):
            return new_style(q, k_cache, block_table, cache_seqlens)

    case = TorchCase([70, 5, 0], device, causal=True)
    program = torch.export.export(Step(), case.inputs)
    assert bits(program.module()(*case.inputs)[0]) == bits(case.run()[0])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_operators(device, dtype):
    """torch's own checks: schema, fake functions, tracing with dynamic shapes."""
    case = TorchCase([70, 5, 0], device, dtype=dtype, s_q=2)
    arguments = (*case.inputs, 512, None, True, False)
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.flash_mla.dense_decode.default, arguments, test_utils=checks)
    out = torch.zeros(3, 2, 16, 512, dtype=case.q.dtype, device=device)
    torch.library.opcheck(torch.ops.flash_mla.dense_decode_out.default, (*arguments, out), test_utils=checks)


def test_fake_tensors(device):
    from torch._subclasses import FakeTensorMode

    case = TorchCase([70, 5, 0], device)
    with FakeTensorMode() as mode:
        inputs = [mode.from_tensor(x) for x in case.inputs]
        out, lse = flash_mla.flash_mla_with_kvcache(*inputs, 512, flash_mla.get_mla_metadata()[0])
    assert out.shape == (3, 1, 16, 512) and out.dtype == torch.bfloat16
    assert lse.shape == (3, 16, 1) and lse.dtype == torch.float32 and out.device == case.q.device


def test_parameters_are_tensors_too(device):
    case = TorchCase([70, 5, 0], device)
    wanted, _ = case.run()
    case.q = torch.nn.Parameter(case.q)
    assert bits(case.run()[0]) == bits(wanted)


# ---- the other operators, on CPU tensors


def assert_same(got, wanted):
    assert [bits(x) for x in got] == [bits(x) for x in wanted]


@pytest.mark.parametrize("format", ["bf16", "fp8_656", "fp8_584"])
@pytest.mark.parametrize("with_out", [False, True])
def test_modes_fullgraph(format, with_out):
    case = SparseCase(format, s_q=2, topk_length=[3, 70, 0], sink=[0.5] * 16, extra={})
    wanted = case.run()
    out = torch.zeros(3, 2, 16, 512, dtype=case.q.dtype) if with_out else None

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(q, k_cache, out, more):
        metadata, _ = flash_mla.get_mla_metadata()
        got, lse = flash_mla.flash_mla_with_kvcache(
            q * 1, k_cache, None, None, 512, metadata, is_fp8_kvcache=case.is_fp8, out=out, **more
        )
        return got + 0, lse

    assert_same(step(case.q, case.k_cache, out, case.more), wanted)
    assert out is None or bits(out) == bits(wanted[0])


def test_flat_fp8_fullgraph():
    case = TorchCase([70, 5, 0], "cpu", causal=True)
    q, cache = case.q.to(torch.float8_e4m3fn), case.k_cache.to(torch.float8_e4m3fn)
    scale = torch.tensor([0.5])

    def step(q, cache, table, lengths, scale):
        metadata = flash_mla.get_mla_metadata_dense_fp8(lengths, 16, 1)
        return flash_mla.flash_mla_with_kvcache_fp8(q, cache, table, lengths, 512, *metadata, None, True, scale, scale)

    arguments = q, cache, case.block_table, case.cache_seqlens, scale
    assert_same(torch.compile(step, fullgraph=True, backend="aot_eager")(*arguments), step(*arguments))


@pytest.mark.parametrize("with_out", [False, True])
def test_sparse_prefill_fullgraph(with_out):
    case = PrefillCase(topk_length=[0, 70, 1, 5, 33])
    wanted = case.run()
    out = torch.zeros(5, 16, 512, dtype=case.q.dtype) if with_out else None

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(q, kv, indices, lengths, out):
        results = flash_mla.flash_mla_sparse_fwd(q * 1, kv, indices, 0.05, topk_length=lengths, out=out)
        return [x + 0 for x in results]

    assert_same(step(case.q, case.kv, case.indices, torch.tensor(case.lengths, dtype=torch.int32), out), wanted)
    assert out is None or bits(out) == bits(wanted[0])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_varlen_fullgraph(backend):
    """Forward and backward; the packed form slices inside of the graph."""
    case = VarlenCase([(7, 7), (0, 0), (30, 30)], d_qk=128, causal=True)
    qkv = torch.cat([case.q, case.k, case.v], dim=-1).requires_grad_()

    def step(qkv, cumulative):
        out, lse = flash_mla.flash_attn_varlen_qkvpacked_func(qkv, cumulative, 30, 128, causal=True)
        return out, lse

    wanted = step(qkv, case.cu_q)
    dout, dlse = torch.randn(37, 4, 128).bfloat16(), torch.randn(37, 4)
    gradient = torch.autograd.grad(wanted, qkv, [dout, dlse])
    got = torch.compile(step, fullgraph=True, backend=backend)(qkv, case.cu_q)
    assert_same(got, wanted)
    assert_same(torch.autograd.grad(got, qkv, [dout, dlse]), gradient)


def test_other_operators():
    """torch's own checks: schema, fake functions, autograd registration, tracing with dynamic shapes."""
    ops = torch.ops.flash_mla
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic", "test_autograd_registration")
    case = SparseCase("fp8_656", b=2, h_q=4)
    decode = case.q, case.k_cache, None, None, 512, None, False, False, case.more["indices"], *[None] * 7
    torch.library.opcheck(ops.decode.default, decode, test_utils=checks)
    out = torch.zeros(2, 1, 4, 512, dtype=torch.bfloat16)
    torch.library.opcheck(ops.decode_out.default, (*decode, out), test_utils=checks)
    case = PrefillCase(h_q=4)
    prefill = case.q, case.kv, case.indices, 0.05, 512, None, None, False
    torch.library.opcheck(ops.sparse_prefill.default, prefill, test_utils=checks)
    out = torch.zeros(5, 4, 512, dtype=torch.bfloat16)
    torch.library.opcheck(ops.sparse_prefill_out.default, (*prefill, out), test_utils=checks)
    case = VarlenCase([(3, 5), (2, 2)])
    inputs = [x.requires_grad_() for x in (case.q, case.k, case.v)]
    lengths = case.cu_q, case.cu_kv, 3, 5, None, True, False
    torch.library.opcheck(ops.varlen_forward.default, (*inputs, *lengths), test_utils=checks)
    inputs = [x.detach() for x in inputs]
    out, lse = ops.varlen_forward(*inputs, *lengths)
    torch.library.opcheck(
        ops.varlen_backward.default,
        (torch.ones_like(out), torch.ones_like(lse), *inputs, out, lse, *lengths),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_fake_tensors_of_modes():
    from torch._subclasses import FakeTensorMode

    sparse, prefill, varlen = SparseCase("fp8_656"), PrefillCase(), VarlenCase()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor
        out, lse = flash_mla.flash_mla_with_kvcache(
            fake(sparse.q),
            fake(sparse.k_cache),
            None,
            None,
            512,
            flash_mla.get_mla_metadata()[0],
            is_fp8_kvcache=True,
            indices=fake(sparse.more["indices"]),
        )
        assert out.shape == (3, 1, 16, 512) and lse.shape == (3, 16, 1) and lse.dtype == torch.float32
        results = flash_mla.flash_mla_sparse_fwd(fake(prefill.q), fake(prefill.kv), fake(prefill.indices), 0.05)
        assert [x.shape for x in results] == [(5, 16, 512), (5, 16), (5, 16)]
        inputs = [fake(x) for x in (varlen.q, varlen.k, varlen.v, varlen.cu_q, varlen.cu_kv)]
        out, lse = flash_mla.flash_attn_varlen_func(*inputs, *varlen.longest)
        assert out.shape == (91, 4, 128) and out.dtype == torch.bfloat16 and lse.shape == (91, 4)
