"""Checks of arguments that the extension never sees: numbers, words, shapes from which outputs are made."""

from __future__ import annotations

import operator
from typing import Any


def integer(argument: str, value: Any, bits: int = 64) -> int:
    """`value` as a signed integer of so many bits, or ValueError naming the argument."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{argument}: got {value!r}, wanted an integer") from None
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{argument}: got {number}, wanted an integer of {bits} bits")
    return number


def number(argument: str, value: Any) -> float:
    """`value` as a float, or ValueError naming the argument."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{argument}: got {value!r}, wanted a number") from None


def scale(value: Any) -> float | None:
    """A softmax_scale; None stands for the operation's default."""
    return None if value is None else number("softmax_scale", value)


def plan_options(batch_invariant: Any, kernel: Any, num_workers: Any) -> tuple[bool, str, int]:
    """What every planned operation takes, as the extension wants it."""
    return bool(batch_invariant), str(kernel), integer("num_workers", num_workers, bits=32)


def one_of(argument: str, value: Any, words: tuple[str, ...]) -> str:
    """`value` if it is one of `words`, or ValueError that lists them."""
    if value not in words:
        raise ValueError(f"{argument}: got {value!r}, wanted one of {', '.join(map(repr, words))}")
    return str(value)


def shape(argument: str, array: Any, *axes: str) -> tuple[int, ...]:
    """The shape of an array, which has these axes where they are given, or ValueError."""
    found = getattr(array, "shape", None)
    if found is None:
        raise ValueError(f"{argument}: got an object of type {type(array).__name__}, wanted an array")
    if axes and len(found) != len(axes):
        raise ValueError(f"{argument}: got rank {len(found)}, shape {tuple(found)}, wanted ({', '.join(axes)})")
    return tuple(found)
