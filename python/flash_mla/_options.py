"""Switches of the drop-in that its signatures have no room for."""

from __future__ import annotations

import os

def enabled_by_environment() -> bool:
    return os.environ.get("FLASHMLA_BATCH_INVARIANT", "0") not in ("", "0")


class _Switches:
    batch_invariant = enabled_by_environment()


def set_batch_invariant(enabled: bool = True) -> None:
    """Whether the bits of a request may depend on the other requests of its batch: with True they never do.

    Also set by FLASHMLA_BATCH_INVARIANT=1 in the environment. Holds for later calls of the whole process.
    """
    _Switches.batch_invariant = bool(enabled)


def batch_invariant() -> bool:
    return _Switches.batch_invariant
