"""Names, signatures, modes that are not there, bad arguments, import."""

import inspect
import os
import subprocess
import sys

import pytest
import torch
from torch_cases import TorchCase, bits

import flash_mla
import flash_mla.flash_mla_interface as interface

PUBLIC = [
    "get_mla_metadata",
    "flash_mla_with_kvcache",
    "flash_mla_sparse_fwd",
    "flash_attn_varlen_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_varlen_kvpacked_func",
    "get_mla_metadata_dense_fp8",
    "flash_mla_with_kvcache_fp8",
]

SIGNATURES = {
    "flash_mla_with_kvcache": "q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata, num_splits=None, "
    "softmax_scale=None, causal=False, is_fp8_kvcache=False, indices=None, attn_sink=None, extra_k_cache=None, "
    "extra_indices_in_kvcache=None, topk_length=None, extra_topk_length=None, *, out=None",
    "flash_mla_sparse_fwd": "q, kv, indices, sm_scale, d_v=512, attn_sink=None, topk_length=None, *, out=None",
    "flash_mla_with_kvcache_fp8": "q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata, num_splits, "
    "softmax_scale=None, causal=False, descale_q=None, descale_k=None",
    "get_mla_metadata_dense_fp8": "cache_seqlens, num_q_tokens_per_head_k, num_heads_k",
    "flash_attn_varlen_func": "q, k, v, cu_seqlens_qo, cu_seqlens_kv, max_seqlen_qo, max_seqlen_kv, dropout_p=0.0, "
    "softmax_scale=None, causal=False, deterministic=False, is_varlen=True",
    "flash_attn_varlen_qkvpacked_func": "qkv, cu_seqlens, max_seqlen, head_dim_qk, dropout_p=0.0, softmax_scale=None, "
    "causal=False, deterministic=False, is_varlen=True",
    "flash_attn_varlen_kvpacked_func": "q, kv, cu_seqlens_qo, cu_seqlens_kv, max_seqlen_qo, max_seqlen_kv, head_dim_qk, "
    "dropout_p=0.0, softmax_scale=None, causal=False, deterministic=False, is_varlen=True",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_names(name):
    assert getattr(flash_mla, name) is getattr(interface, name)
    assert getattr(flash_mla, name).__doc__


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    signature = inspect.signature(getattr(flash_mla, name))
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(plain)) == f"({SIGNATURES[name]})"


def test_metadata_class_fields():
    assert list(inspect.signature(interface.FlashMLASchedMeta).parameters) == [
        "have_initialized",
        "config",
        "tile_scheduler_metadata",
        "num_splits",
    ]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "call",
    [
        lambda q, cache, ints: flash_mla.flash_mla_with_kvcache(
            q, cache, None, None, 512, flash_mla.get_mla_metadata()[0], indices=ints.view(1, 1, 64)
        ),
        lambda q, cache, ints: flash_mla.flash_mla_sparse_fwd(q[0], cache[0], ints.view(1, 1, 64), 1.0),
        lambda q, cache, ints: flash_mla.flash_attn_varlen_func(
            q[0, ..., :192], q[0, ..., :192], q[0, ..., :128], ints[:2], ints[:2], 1, 1
        ),
    ],
)
def test_modes_that_a_gpu_lacks(gpu, call):
    """Legal calls that no kernel serves on this device: the reason, and nothing is computed elsewhere instead."""
    q, cache = torch.zeros(1, 1, 16, 576, device=gpu).bfloat16(), torch.zeros(1, 64, 1, 576, device=gpu).bfloat16()
    with pytest.raises(NotImplementedError):
        call(q, cache, torch.arange(64, dtype=torch.int32, device=gpu))


@pytest.mark.parametrize(
    "name", ["attn_sink", "extra_k_cache", "extra_indices_in_kvcache", "topk_length", "extra_topk_length"]
)
def test_sparse_arguments_without_indices(device, name):
    with pytest.raises(ValueError, match=name):
        TorchCase([5], device).run(**{name: torch.zeros(16, device=device)})


def strided(q):
    return torch.zeros(*q.shape[:3], 1152, dtype=q.dtype, device=q.device)[..., ::2]


@pytest.mark.parametrize(
    "name, spoil, got",
    [
        ("q", lambda t: t[0], "rank 3"),
        ("q", lambda t: t.float(), "float32"),
        ("q", lambda t: t.half(), "float16"),
        ("q", strided, "stride"),
        ("q", lambda t: 3, "int"),
        ("q", lambda t: None, "NoneType"),
        ("k_cache", lambda t: t.float(), "float32"),
        ("k_cache", lambda t: t.to(torch.float8_e5m2), "e5m2"),
        ("k_cache", lambda t: t[:, :, 0], "rank 3"),
        ("k_cache", lambda t: t.to("meta"), "k_cache"),
        ("block_table", lambda t: t.long(), "int64"),
        ("block_table", lambda t: t[:1], "(1, "),
        ("block_table", lambda t: None, "NoneType"),
        ("cache_seqlens", lambda t: t.long(), "int64"),
        ("cache_seqlens", lambda t: t[:, None], "rank 2"),
        ("cache_seqlens", lambda t: t.float(), "float32"),
        ("cache_seqlens", lambda t: None, "neither"),
    ],
)
def test_bad_argument(device, name, spoil, got):
    """Field case 54 and the like: a ValueError that names the argument; out stays untouched."""
    case = TorchCase([70, 5], device)
    arguments = dict(zip(("q", "k_cache", "block_table", "cache_seqlens"), case.inputs, strict=True))
    arguments[name] = spoil(arguments[name])
    out = torch.full((2, 1, 16, 512), 3.0, dtype=torch.bfloat16, device=device)
    with pytest.raises(ValueError) as caught:
        flash_mla.flash_mla_with_kvcache(
            **arguments, head_dim_v=512, tile_scheduler_metadata=flash_mla.get_mla_metadata()[0], out=out
        )
    assert name in str(caught.value) and got in str(caught.value), str(caught.value)
    assert (out == 3.0).all()


@pytest.mark.parametrize("head_dim_v", [0, -1, 577, 2**40])
def test_bad_value_length(device, head_dim_v):
    case = TorchCase([70, 5], device)
    with pytest.raises(ValueError, match="d_v"):
        flash_mla.flash_mla_with_kvcache(*case.inputs, head_dim_v, flash_mla.get_mla_metadata()[0])


@pytest.mark.parametrize(
    "out", [torch.zeros(2, 1, 16, 512), torch.zeros(2, 1, 16, 511).bfloat16(), torch.zeros(1, 1, 16, 512).bfloat16()]
)
def test_bad_out(device, out):
    with pytest.raises(ValueError, match="out"):
        TorchCase([70, 5], device).run(out=out.to(device))


@pytest.mark.gpu
def test_mixed_devices(gpu):
    """Field case 73."""
    case = TorchCase([70, 5], gpu)
    for name in ("k_cache", "block_table", "cache_seqlens"):
        arguments = dict(zip(("q", "k_cache", "block_table", "cache_seqlens"), case.inputs, strict=True))
        arguments[name] = arguments[name].cpu()
        with pytest.raises(ValueError, match=f"{name}: got .*cpu"):
            flash_mla.flash_mla_with_kvcache(
                **arguments, head_dim_v=512, tile_scheduler_metadata=flash_mla.get_mla_metadata()[0]
            )


def run_python(code, **environment):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done


def test_import_is_silent_and_needs_no_gpu():
    """Field case 79."""
    done = run_python("import flash_mla; print(flash_mla.__version__)", CUDA_VISIBLE_DEVICES="")
    assert done.stderr == "" and done.stdout.strip() == flash_mla.__version__


def test_torch_without_the_exchange_table(device):
    """torch before 2.10 has no __dlpack_c_exchange_api__: the same results by __dlpack__."""
    code = f"""
import torch
del torch.Tensor.__dlpack_c_exchange_api__
from torch_cases import TorchCase
case = TorchCase([70, 5], {device!r})
case.q.requires_grad_(True)
case.run_and_check()
if {device!r} == "cpu":
    from sparse_cases import SparseCase
    from test_sparse_prefill import PrefillCase
    from test_varlen import VarlenCase
    SparseCase("fp8_656", extra={{}}).run_and_check()
    PrefillCase().run_and_check()
    case = VarlenCase()
    case.q.requires_grad_(True)
    case.run()[0].sum().backward()
"""
    run_python(code)
