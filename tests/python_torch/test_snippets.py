"""The Python blocks of docs/python.md that need torch run as they stand, at sizes for a CPU."""

import pathlib
import re

import pytest
import torch
from torch_cases import TorchCase, bits

import flash_mla

PAGE = pathlib.Path(__file__).parents[2] / "docs/python.md"


@pytest.fixture(scope="module")
def blocks():
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)


def block_with(blocks, text):
    (found,) = [block for block in blocks if text in block]
    return found


def test_drop_in(blocks):
    case = TorchCase([300, 5, 64], "cpu", s_q=2, h_q=128, causal=True)
    names = dict(cache_seqlens=case.cache_seqlens, s_q=2, h_q=128, h_kv=1, num_layers=2, dv=512, block_table=case.block_table)
    names |= dict(q_i=case.q, kvcache_i=case.k_cache)
    exec(block_with(blocks, "for i in range(num_layers)"), names)
    wanted = case.run()
    assert bits(names["o_i"]) == bits(wanted[0]) and bits(names["lse_i"]) == bits(wanted[1])
    assert names["flash_mla_with_kvcache"] is flash_mla.flash_mla_with_kvcache


def test_mla(blocks):
    torch.manual_seed(0)
    names = dict(batch=2, tokens=24, device="cpu")
    exec(block_with(blocks, "sparse_prefill=True)\n"), names)
    q, k, v = (names[x].bfloat16().double().view(2, 24, 128, 128).transpose(1, 2) for x in ("query", "key", "value"))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    output = names["output"]
    assert output.dtype == torch.float32 and output.shape == (2, 24, 16384)
    assert ((output.double() - wanted).norm() / wanted.norm()).item() < 2**-7


def test_mla_over_a_cache(blocks):
    torch.manual_seed(0)
    names = dict(
        latent=torch.randn(100, 512).bfloat16(),
        rope=torch.randn(100, 64).bfloat16(),
        slot_ids=torch.arange(64, 164, dtype=torch.int32),
        q_nope=torch.randn(1, 3, 16, 128).bfloat16(),
        q_rope=torch.randn(1, 3, 16, 64).bfloat16(),
        block_table=torch.tensor([[1, 2]], dtype=torch.int32),
        cache_seqlens=torch.tensor([100], dtype=torch.int32),
    )
    exec("from flashmla import MLA\n" + block_with(blocks, "cache.append("), names)
    assert names["output"].shape == (1, 3, 16, 128) and names["output"].isfinite().all()
