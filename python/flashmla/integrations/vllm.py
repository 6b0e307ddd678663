"""vLLM on this library: `flashmla.integrations.vllm.install()` before or after vLLM's attention backends are imported."""

from __future__ import annotations

import importlib
from typing import Any

from flashmla.integrations._replace import Replacements, is_there

# vLLM's vendored copy, and the modules that hand its functions on to the attention backends (they moved between releases).
_VENDORED = "vllm.third_party.flashmla"
_DISPATCHERS = ("vllm.v1.attention.ops.flashmla", "vllm.attention.ops.flashmla")
_OPERATORS = {
    "get_mla_decoding_metadata_dense_fp8": "(Tensor seqlens_k, int num_heads_per_head_k, int num_heads_k) -> (Tensor, Tensor)",
    "fwd_kvcache_mla_fp8": "(Tensor q, Tensor kcache, int head_size_v, Tensor seqlens_k, Tensor block_table, float softmax_scale, "
    "bool is_causal, Tensor tile_scheduler_metadata, Tensor num_splits, Tensor? descale_q, Tensor? descale_k) -> "
    "(Tensor, Tensor)",
}

_installed: Replacements | None = None


def install() -> None:
    """Makes vLLM call this library wherever it would call its own copy of FlashMLA.

    Replaced are the modules vllm.third_party.flashmla and .flash_mla_interface, the operators of
    torch.ops._flashmla_extension_C, the functions of vLLM's ops.flashmla module (which then also reports FlashMLA as available,
    with or without vLLM's compiled extensions), and every copy that loaded vLLM modules have imported from these. Which GPUs
    vLLM asks for stays vLLM's decision. A second call does nothing; `uninstall` restores everything.

    Raises ImportError when vLLM is not there.
    """
    global _installed
    if _installed is not None:
        return
    if not is_there("vllm"):
        raise ImportError("vllm: not installed")
    package = importlib.import_module("flash_mla")
    interface = importlib.import_module("flash_mla.flash_mla_interface")
    replacements = Replacements()
    try:
        replacements.module(_VENDORED, package)
        replacements.module(f"{_VENDORED}.flash_mla_interface", interface)
        _replace_operators(replacements, package)
        for name in filter(is_there, _DISPATCHERS):
            dispatcher = importlib.import_module(name)
            for public in interface.__all__:
                if hasattr(dispatcher, public):
                    replacements.attribute(dispatcher, public, getattr(interface, public))
            if hasattr(dispatcher, "_is_flashmla_available"):
                replacements.attribute(dispatcher, "_is_flashmla_available", _is_available)
        replacements.users(["vllm"])
    except BaseException:
        replacements.undo()
        raise
    _installed = replacements


def uninstall() -> None:
    """Restores what install() has replaced. Modules imported meanwhile keep what they have imported."""
    global _installed
    if _installed is not None:
        _installed.undo()
        _installed = None


def _is_available() -> tuple[bool, str | None]:
    return True, None


def _replace_operators(replacements: Replacements, package: Any) -> None:
    torch = importlib.import_module("torch")
    library = torch.library.Library("_flashmla_extension_C", "FRAGMENT")
    replacements.also_undo(library._destroy)

    def metadata(cache_seqlens: Any, num_heads_per_head_k: int, num_heads_k: int) -> Any:
        return package.get_mla_metadata_dense_fp8(cache_seqlens, num_heads_per_head_k, num_heads_k)

    def decode(
        q: Any, k_cache: Any, head_dim_v: int, cache_seqlens: Any, block_table: Any, softmax_scale: float, causal: bool, *rest: Any
    ) -> Any:
        tile_scheduler_metadata, num_splits, descale_q, descale_k = rest
        return package.flash_mla_with_kvcache_fp8(
            q,
            k_cache,
            block_table,
            cache_seqlens,
            head_dim_v,
            tile_scheduler_metadata,
            num_splits,
            softmax_scale,
            causal,
            descale_q,
            descale_k,
        )

    for (name, signature), run in zip(_OPERATORS.items(), (metadata, decode), strict=True):
        if not hasattr(torch.ops._flashmla_extension_C, name):
            library.define(name + signature)
        for key in ("CPU", "CUDA", "Meta"):
            library.impl(name, run, key, allow_override=True)
