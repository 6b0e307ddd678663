"""Registered operators: what tracers see instead of the binding. Their signatures hold tensors and scalars alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# torch 2.10 and newer let the binding read a tensor in place, whatever autograd knows about it.
_CAN_DESCRIBE = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
_library = torch.library.Library("flash_mla", "FRAGMENT")


def register(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """torch.ops.flash_mla.<name>, run by `run` on CPU and CUDA tensors and by `fake` on tensors without data."""
    name = schema.partition("(")[0]
    _library.define(schema)
    for key in ("CPU", "CUDA"):
        _library.impl(name, run, key)
    torch.library.register_fake(f"flash_mla::{name}", fake, lib=_library)


def is_traced(tensor: Any) -> bool:
    """Whether a call on this tensor has to go through the operator: under torch.compile, and for tensor subclasses."""
    return torch.compiler.is_compiling() or type(tensor) not in (torch.Tensor, torch.nn.Parameter)


def check_tensor(name: str, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{name}: got {type(value).__name__}, wanted a torch tensor")


def readable(*tensors: Any) -> tuple[Any, ...]:
    """What the binding can read: older torch refuses to export tensors that require grad."""
    if _CAN_DESCRIBE:
        return tensors
    return tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in tensors)
