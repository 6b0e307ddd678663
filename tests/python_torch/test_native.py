"""flashmla.decode on torch tensors."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch_cases import TorchCase, bits

import flash_mla
import flashmla


def test_same_as_the_drop_in(device):
    case = TorchCase([300, 5, 0], device)
    wanted_out, wanted_lse = case.run()
    out, lse = flashmla.decode(*case.inputs)
    assert isinstance(out, torch.Tensor) and out.device == case.q.device and out.dtype == torch.bfloat16
    assert bits(out) == bits(wanted_out) and bits(lse) == bits(wanted_lse)


def test_drop_in_in_steps(device, monkeypatch):
    """What the drop-in does when outputs cannot be made by torch's short allocation call (another device than the current)."""
    case = TorchCase([300, 5, 0], device)
    wanted = case.run()
    monkeypatch.setattr(flash_mla._dense, "ALLOCATION", None)
    for options in ({}, {"out": torch.empty_like(wanted[0])}):
        out, lse = case.run(**options)
        assert bits(out) == bits(wanted[0]) and bits(lse) == bits(wanted[1])
    metadata, _ = flash_mla.get_mla_metadata()
    case.run(metadata, None)
    with pytest.raises(ValueError, match="first used with b = 3"):
        TorchCase([300, 5], device).run(metadata, None)


def test_drop_in_from_several_threads(device):
    """Calls of different shapes and dtypes in turns: what one remembers of its last call is nobody else's."""
    cases = [TorchCase([70], device, h_q=1), TorchCase([5, 0], device, dtype="float16"), TorchCase([9] * 40, device, h_q=2)]
    wanted = [[bits(x) for x in case.run()] for case in cases]

    def run(first):
        for i in range(first, first + 90):
            metadata, _ = flash_mla.get_mla_metadata()
            results = cases[i % 3].run(metadata, None)
            assert [bits(x) for x in results] == wanted[i % 3]

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run, first) for first in range(4)]:
            done.result()


def test_caller_owned_memory(device):
    case = TorchCase([300, 5, 0], device)
    out = torch.empty(3, 1, 16, 512, dtype=torch.bfloat16, device=device)
    lse = torch.empty(3, 16, 1, device=device)
    plan = flashmla.plan(3, h_q=16, max_pages=case.block_table.shape[1], device=device)
    memory = torch.empty(plan.workspace_bytes + 256, dtype=torch.uint8, device=device)
    start = -memory.data_ptr() % 256
    workspace = memory[start : start + plan.workspace_bytes]
    returned = flashmla.decode(*case.inputs, out=out, lse=lse, workspace=workspace)
    assert returned[0] is out and returned[1] is lse and bits(out) == bits(case.run()[0])


def test_cumulative_lengths(device):
    case = TorchCase([300, 5, 0], device)
    cumulative = torch.cat([case.cache_seqlens.new_zeros(1), case.cache_seqlens.cumsum(0, dtype=torch.int32)])
    out, _ = flashmla.decode(case.q, case.k_cache, case.block_table, cu_seqlens_k=cumulative)
    assert bits(out) == bits(case.run()[0])


def test_num_workers_keeps_a_correct_result(device):
    case = TorchCase([3000, 5, 0], device, h_q=128)
    for workers in (1, 2, 7):
        out, _ = flashmla.decode(*case.inputs, num_workers=workers)
        assert torch.allclose(out.float(), case.run()[0].float(), atol=2**-7, rtol=2**-7)


@pytest.mark.gpu
@pytest.mark.parametrize("how", ["object", "address"])
def test_explicit_stream(gpu, how):
    case = TorchCase([300, 5, 0], gpu)
    wanted, _ = case.run()
    good = case.q.clone()
    case.q.fill_(float("nan"))
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        case.q.copy_(good)
    out, _ = flashmla.decode(*case.inputs, stream=stream if how == "object" else stream.cuda_stream)
    stream.synchronize()
    assert bits(out) == bits(wanted)


@pytest.mark.gpu
def test_cupy(gpu):
    cupy = pytest.importorskip("cupy")
    case = TorchCase([300, 5, 0], gpu, dtype="float16")
    torch.cuda.synchronize()
    out, lse = flashmla.decode(*(cupy.from_dlpack(x) for x in case.inputs))
    assert isinstance(out, cupy.ndarray) and isinstance(lse, cupy.ndarray)
    cupy.cuda.get_current_stream().synchronize()
    assert bits(torch.from_dlpack(out)) == bits(case.run()[0])

