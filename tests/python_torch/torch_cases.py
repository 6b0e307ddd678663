"""The NumPy cases as torch tensors, and a call's result held against the float64 oracle."""

import mla_oracle
import numpy as np
import torch
from mla_cases import cpu_rounding, make_case

import flash_mla
import flashmla

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def to_torch(array, device):
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(array).to(device)


def to_numpy(tensor):
    return tensor.detach().cpu().double().numpy()


def rounding(dtype, device, format="bf16"):
    """Matrix units round the softmax weights to 16 bits and cut when they add; parts of split rows are stored in fp16."""
    if device != "cpu":
        return mla_oracle.Rounding(weights=dtype, partials="float16", addition=2.0**-23)
    return cpu_rounding(dtype, format)


class TorchCase:
    """A case on a device, with the keyword arguments of flash_mla_with_kvcache."""

    def __init__(self, lengths, device, **options):
        self.case = make_case(lengths, **options)
        self.device = device
        self.q, self.k_cache, self.block_table, self.cache_seqlens = (to_torch(x, device) for x in self.case.inputs)

    @property
    def inputs(self):
        return self.q, self.k_cache, self.block_table, self.cache_seqlens

    @property
    def options(self):
        return self.case.options

    def run(self, metadata=None, num_splits=None, **more):
        if metadata is None:
            metadata, num_splits = flash_mla.get_mla_metadata()
        return flash_mla.flash_mla_with_kvcache(*self.inputs, 512, metadata, num_splits, **self.options, **more)

    def expected(self):
        dtype = self.case.q.dtype.name
        return mla_oracle.decode(*self.case.inputs, **self.options, rounding=rounding(dtype, self.device))

    def run_and_check(self, *metadata, **more):
        out, lse = self.run(*metadata, **more)
        assert out.dtype == self.q.dtype and lse.dtype == torch.float32 and out.device == self.q.device == lse.device
        mla_oracle.check(to_numpy(out), to_numpy(lse), self.expected())
        return out, lse


def bits(tensor):
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
