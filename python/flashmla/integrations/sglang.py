"""SGLang on this library: `flashmla.integrations.sglang.install()` before or after SGLang is imported."""

from __future__ import annotations

import importlib

from flashmla.integrations._replace import Replacements, is_there

# Where SGLang's backends get FlashMLA's functions from: the kernel package, later a module of SGLang itself.
_MODULES = ("sgl_kernel.flash_mla", "sglang.kernels.ops.attention.flash_mla_interface")

_installed: Replacements | None = None


def install() -> None:
    """Makes SGLang call this library wherever it would call sgl_kernel.flash_mla.

    Replaced are the module sgl_kernel.flash_mla (in newer releases sglang.kernels.ops.attention.flash_mla_interface), and every
    copy that loaded modules of sgl_kernel and sglang have imported from it. A second call does nothing; `uninstall` restores
    everything.

    Raises ImportError when neither sgl_kernel nor sglang is there.
    """
    global _installed
    if _installed is not None:
        return
    packages = [name for name in ("sgl_kernel", "sglang") if is_there(name)]
    if not packages:
        raise ImportError("sgl_kernel: not installed, nor is sglang")
    module = importlib.import_module("flash_mla._sgl")
    replacements = Replacements()
    for name in _MODULES:
        if name.partition(".")[0] in packages:
            replacements.module(name, module)
    replacements.users(packages)
    _installed = replacements


def uninstall() -> None:
    """Restores what install() has replaced. Modules imported meanwhile keep what they have imported."""
    global _installed
    if _installed is not None:
        _installed.undo()
        _installed = None
