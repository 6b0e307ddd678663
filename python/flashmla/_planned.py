"""How planned operations are called, so that frameworks allocate and nothing is allocated in vain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flashmla import _arrays


def in_two_steps(
    q: Any,
    call: Callable[[tuple[Any, ...], Any, bool], int],
    outputs: tuple[Any, ...],
    fresh: Callable[[], tuple[Any, ...]],
    workspace: Any,
    address: int | None,
) -> tuple[Any, ...]:
    """Checks and plans, makes the outputs that are missing, and runs: nothing is allocated for a call that is wrong."""
    workspace_bytes = call(tuple(_arrays.export(array, address) for array in outputs), None, False)
    with _arrays.working_on(q, address):
        outputs = fresh()
        if workspace is None and _arrays.needs_workspace(q):
            workspace = _arrays.empty(q, (workspace_bytes,), "uint8")
        memory = _arrays.export(workspace, address)
        call(tuple(_arrays.export(array, address) for array in outputs), memory, True)
    return tuple(_arrays.deliver(q, array) for array in outputs)
