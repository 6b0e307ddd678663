"""flash_mla_with_kvcache, dense, against the float64 oracle."""

import math

import mla_oracle
import pytest
import torch
from torch_cases import TorchCase, bits, to_numpy

import flash_mla


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("logit_std", [0.01, 1, 8, 50])
def test_ragged_batch(device, dtype, logit_std):
    TorchCase([1, 0, 63, 64, 65, 200, 2500], device, dtype=dtype, logit_std=logit_std).run_and_check()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("logit_std", [0.01, 1, 8])
def test_no_further_off_than_torch(dtype, logit_std):
    """At most 1.2 times the relative error of torch's own computation in the same dtype with fp32 softmax."""
    lengths = [700, 65]
    case = TorchCase(lengths, "cpu", h_q=32, dtype=dtype, logit_std=logit_std)
    out, _ = case.run()
    theirs = torch.empty_like(out)
    for i, n in enumerate(lengths):
        k = case.k_cache[case.block_table[i, : -(-n // 64)].long()].reshape(-1, 576)[:n]
        weights = torch.softmax((case.q[i] @ k.T).float() * 576**-0.5, -1)
        theirs[i] = weights.to(out.dtype) @ k[:, :512]
    exact = case.expected().out
    ours, other = (((to_numpy(x) - exact) ** 2).sum() for x in (out, theirs))
    assert ours <= 1.2**2 * other


@pytest.mark.parametrize(
    "h_q, h_kv", [(1, 1), (3, 1), (4, 2), (9, 3), (8, 8), (12, 1), (16, 2), (20, 1), (63, 1), (96, 3), (128, 1), (128, 8)]
)
@pytest.mark.parametrize("s_q, causal", [(1, False), (2, True), (4, True)])
def test_heads(device, h_q, h_kv, s_q, causal):
    """Field cases 39 and 40: every head count that h_kv divides."""
    TorchCase([70, 5, 0], device, h_q=h_q, h_kv=h_kv, s_q=s_q, causal=causal).run_and_check()


@pytest.mark.parametrize("s_q", [3, 5, 64, 127, 128])
def test_many_query_tokens(device, s_q):
    """Field case 49: prompts of up to 128 tokens come down the decode path."""
    TorchCase([100, 2, 130], device, h_q=16, s_q=s_q, causal=True).run_and_check()


def test_two_query_tokens_at_every_length(device):
    """Field case 36."""
    TorchCase(list(range(0, 201)), device, h_q=8, s_q=2, causal=True).run_and_check()


def test_padded_slots_with_two_query_tokens(device):
    """Field case 3: a length-0 slot's per-token length clamps at 0."""
    for lengths in ([10, 7, 12, 0], [10, 7, 12, 1]):
        TorchCase(lengths, device, s_q=2, causal=True).run_and_check()


def test_more_tokens_than_keys(device):
    """Field case 4."""
    case = TorchCase([1], device, s_q=4, causal=True)
    out, lse = case.run_and_check()
    assert (out[0, :3] == 0).all() and torch.isposinf(lse[0, :, :3]).all()
    assert torch.equal(out[0, 3], case.k_cache[case.block_table[0, 0].item(), 0, :, :512].expand(16, 512))


def test_lengths_of_zero_and_an_empty_pool(device):
    """Field case 1."""
    case = TorchCase([0] * 16, device)
    case.k_cache = case.k_cache[:0]
    out, lse = case.run()
    assert (out == 0).all() and torch.isposinf(lse).all()
    TorchCase([0, 5, 0, 64], device).run_and_check()


def test_no_requests(device):
    """Field case 9."""
    metadata, _ = flash_mla.get_mla_metadata()
    out, lse = flash_mla.flash_mla_with_kvcache(
        torch.zeros(0, 1, 16, 576, dtype=torch.bfloat16, device=device),
        torch.zeros(4, 64, 1, 576, dtype=torch.bfloat16, device=device),
        torch.zeros(0, 1, dtype=torch.int32, device=device),
        torch.zeros(0, dtype=torch.int32, device=device),
        512,
        metadata,
    )
    assert out.shape == (0, 1, 16, 512) and lse.shape == (0, 16, 1)


def test_every_row_of_out_is_written(device):
    """Field case 2: idle slots hold zeros, not what the buffer held before."""
    case = TorchCase([100] + [0] * 1023, device)
    out = torch.full((1024, 1, 16, 512), math.nan, dtype=torch.bfloat16, device=device)
    returned, lse = case.run(out=out)
    assert returned is out
    assert (out[1:] == 0).all() and torch.isposinf(lse[1:]).all() and torch.isfinite(out[0]).all()
    mla_oracle.check(to_numpy(out), to_numpy(lse), case.expected())


@pytest.mark.parametrize("length", [1, 13, 63, 65])
def test_bytes_without_a_token_do_not_matter(device, length):
    """Field cases 11 and 13."""
    results = {bits(TorchCase([length], device, poison=p).run()[0]) for p in (0.0, math.nan, math.inf, -math.inf)}
    assert len(results) == 1


def test_strided_inputs(device):
    """Field cases 50 and 51: heads outside tokens, wide rows, one layer of a packed pool, a sliced table."""
    case = TorchCase([70, 200, 64], device, s_q=2)
    packed = case.run()
    wide = torch.full((3, 16, 2, 600), math.nan, dtype=torch.bfloat16, device=device)
    wide[..., :576] = case.q.transpose(1, 2)
    pool = torch.full((case.k_cache.shape[0], 8, 64, 1, 576), math.nan, dtype=torch.bfloat16, device=device)
    pool[:, 3] = case.k_cache
    table = torch.full((6, case.block_table.shape[1] + 5), -1, dtype=torch.int32, device=device)
    table[::2, : case.block_table.shape[1]] = case.block_table
    case.q, case.k_cache = wide[..., :576].transpose(1, 2), pool[:, 3]
    case.block_table = table[::2, : case.block_table.shape[1]]
    out, lse = case.run()
    assert bits(out) == bits(packed[0]) and bits(lse) == bits(packed[1])


def test_uneven_batch_equals_single_calls(device):
    """Field case 17: many requests a worker; and case 31 by default: within two units in the last place."""
    lengths = [1 + (i * 7919) % (5000 if device == "cuda" else 500) for i in range(300)]
    case = TorchCase(lengths, device)
    out, lse = case.run()
    for i in range(0, 300, 7):
        single = TorchCase([0], device)
        single.q, single.k_cache = case.q[i : i + 1], case.k_cache
        single.block_table, single.cache_seqlens = case.block_table[i : i + 1], case.cache_seqlens[i : i + 1]
        one, one_lse = single.run()
        assert torch.allclose(one[0].float(), out[i].float(), rtol=2**-7, atol=2**-8)
        assert torch.allclose(one_lse[0], lse[i], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("how", ["switch", "environment"])
def test_batch_invariance(device, how, monkeypatch):
    """Field case 31, opted in: a request's bits alone, in batches of 2, 8, 64, 321, and shuffled."""
    if how == "switch":
        flash_mla.set_batch_invariant(True)
    else:
        monkeypatch.setenv("FLASHMLA_BATCH_INVARIANT", "1")
        from flash_mla import _options

        monkeypatch.setattr(_options._Switches, "batch_invariant", _options.enabled_by_environment())
    case = TorchCase([900] + [1 + (i * 131) % 700 for i in range(320)], device, h_q=16)

    def run(rows):
        rows = torch.tensor(rows, device=device)
        metadata, _ = flash_mla.get_mla_metadata()
        return flash_mla.flash_mla_with_kvcache(
            case.q[rows], case.k_cache, case.block_table[rows], case.cache_seqlens[rows], 512, metadata
        )

    alone = run([0])
    for b in (2, 8, 64, 321):
        out, lse = run(list(range(b)))
        assert bits(out[:1]) == bits(alone[0]) and bits(lse[:1]) == bits(alone[1])
    out, lse = run([5, 17, 0, 200])
    assert bits(out[2:3]) == bits(alone[0]) and bits(lse[2:3]) == bits(alone[1])


def test_same_inputs_same_bits(device):
    case = TorchCase([3000, 17, 0, 800], device, h_q=128)
    first = case.run()
    for _ in range(20):
        again = case.run()
        assert bits(again[0]) == bits(first[0]) and bits(again[1]) == bits(first[1])


def test_nan_stays_in_its_request(device):
    case = TorchCase([80, 80, 80], device)
    clean, _ = case.run()
    case.k_cache[case.block_table[1, 0].item(), 5] = math.nan
    out, _ = case.run()
    assert torch.isnan(out[1]).all() and torch.equal(out[0], clean[0]) and torch.equal(out[2], clean[2])


def test_padding_heads_do_not_matter(device):
    """Field case 20, dense: NaN and inf in some heads leave the others exact; bit for bit on the CPU, where rows are apart."""
    case = TorchCase([70, 5], device, h_q=64)
    clean, clean_lse = case.run()
    expected = case.expected()
    case.q[:, :, 8:36] = math.nan
    case.q[:, :, 36:] = math.inf
    out, lse = case.run()
    mla_oracle.check(to_numpy(out[:, :, :8]), to_numpy(lse[:, :8]), expected.heads(slice(0, 8)))
    if device == "cpu":
        assert torch.equal(out[:, :, :8], clean[:, :, :8]) and torch.equal(lse[:, :8], clean_lse[:, :8])


def test_scale(device):
    case = TorchCase([90, 7], device)
    case.case.options["softmax_scale"] = 192**-0.5
    case.run_and_check()


def test_inputs_that_require_grad_and_inference_mode(device):
    case = TorchCase([70, 5], device)
    wanted, _ = case.run()
    case.q.requires_grad_(True)
    out, lse = case.run()
    assert bits(out) == bits(wanted) and not out.requires_grad and not lse.requires_grad
    with torch.inference_mode():
        assert bits(case.run()[0]) == bits(wanted)


def test_layout_of_lse(device):
    """Field case 61: (b, h_q, s_q), packed."""
    for s_q in (1, 3):
        _, lse = TorchCase([70, 5], device, s_q=s_q).run()
        assert lse.shape == (2, 16, s_q) and lse.is_contiguous()


@pytest.mark.gpu
def test_long_grids(gpu):
    """Field case 33: neither the batch nor the rows of a request meet a limit of the grid."""
    k_cache = torch.randn(1, 64, 1, 576, device=gpu).bfloat16()
    for b, s_q, h_q in ((1, 4096, 128), (65600, 1, 1)):
        q = torch.randn(b, s_q, h_q, 576, device=gpu).bfloat16()
        table = torch.zeros(b, 1, dtype=torch.int32, device=gpu)
        lengths = torch.full((b,), 64, dtype=torch.int32, device=gpu)
        out, lse = flash_mla.flash_mla_with_kvcache(q, k_cache, table, lengths, 512, flash_mla.get_mla_metadata()[0])
        rows = q[-1, -1].float()
        scores = rows @ k_cache[0, :, 0].float().T * 576**-0.5
        wanted = scores.softmax(-1) @ k_cache[0, :, 0, :512].float()
        assert torch.allclose(out[-1, -1].float(), wanted, atol=0.02, rtol=0.02)
        assert torch.isfinite(out).all() and torch.isfinite(lse).all()


@pytest.mark.gpu
def test_pool_past_two_to_the_31(gpu):
    """Field case 36: 128 requests of 32,768 tokens, a pool of 2.4e9 elements."""
    pages = 128 * 512
    k_cache = torch.empty(pages, 64, 1, 576, dtype=torch.bfloat16, device=gpu).normal_()
    table = torch.randperm(pages, device=gpu).int().view(128, 512)
    q = torch.randn(128, 2, 8, 576, device=gpu).bfloat16()
    lengths = torch.full((128,), 32768, dtype=torch.int32, device=gpu)
    out, _ = flash_mla.flash_mla_with_kvcache(
        q, k_cache, table, lengths, 512, flash_mla.get_mla_metadata()[0], causal=True
    )
    for b in (0, 63, 127):
        keys = k_cache[table[b].long()].view(-1, 576).float()
        for token in (0, 1):
            visible = keys[: 32767 + token]
            weights = (q[b, token].float() @ visible.T * 576**-0.5).softmax(-1)
            assert torch.allclose(out[b, token].float(), weights @ visible[:, :512], atol=2e-3, rtol=0.02)


@pytest.mark.gpu
def test_ends_while_the_gpu_is_busy(gpu):
    """Field case 32: no waiting between blocks that needs all of them on the machine at once."""
    case = TorchCase([2000] * 65, gpu, h_q=128)
    wanted = case.run()
    busy = torch.cuda.Stream()
    a = torch.randn(8192, 8192, device=gpu).bfloat16()
    torch.cuda.synchronize()
    with torch.cuda.stream(busy):
        for _ in range(30):
            a @ a
    results = [case.run() for _ in range(20)]
    torch.cuda.synchronize()
    assert all(bits(out) == bits(wanted[0]) for out, _ in results)


@pytest.mark.gpu
def test_current_stream_is_used(gpu):
    """Work is queued behind what the current stream already holds."""
    case = TorchCase([70, 5], gpu)
    wanted, _ = case.run()
    good = case.q.clone()
    case.q.fill_(math.nan)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        case.q.copy_(good)
        out, _ = case.run()
    stream.synchronize()
    assert bits(out) == bits(wanted)


@pytest.mark.gpu
def test_two_streams_at_once(gpu):
    """Every call may need all processors at once; calls of two streams take turns, and their bits stay their own."""
    cases = [TorchCase([4096], gpu, h_q=128), TorchCase([2000] * 65, gpu, h_q=128)]
    wanted = [case.run() for case in cases]
    streams = [torch.cuda.Stream() for _ in cases]
    torch.cuda.synchronize()
    results = ([], [])
    for _ in range(100):
        for case, stream, got in zip(cases, streams, results, strict=True):
            with torch.cuda.stream(stream):
                got.append(case.run())
    torch.cuda.synchronize()
    for (out, lse), got in zip(wanted, results, strict=True):
        assert all(bits(o) == bits(out) and bits(e) == bits(lse) for o, e in got)


@pytest.mark.gpu
def test_tensors_on_another_device_than_the_current_one(gpu):
    """Field case 71."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device")
    torch.cuda.set_device(0)
    case = TorchCase([70, 5, 3000], "cuda:1")
    metadata, num_splits = flash_mla.get_mla_metadata(case.cache_seqlens, 16, 1)
    assert metadata.device.index == 1 and num_splits.device.index == 1
    case.run_and_check(metadata, num_splits)
    assert torch.cuda.current_device() == 0
    stream = torch.cuda.Stream(device="cuda:1")
    good = case.q.clone()
    wanted, _ = case.run()
    case.q.fill_(math.nan)
    torch.cuda.synchronize("cuda:1")
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        case.q.copy_(good)
        torch.cuda.set_device(0)
        with torch.cuda.stream(stream):
            out, _ = case.run()
    torch.cuda.synchronize("cuda:1")
    assert bits(out) == bits(wanted)
