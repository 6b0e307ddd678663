"""Checks of arguments that the extension never sees: numbers, words, shapes from which outputs are made."""

from __future__ import annotations

import operator
from typing import Any


def integer(argument: str, value: Any) -> int:
    """`value` as an int, or ValueError naming the argument."""
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{argument}: got {value!r}, wanted an integer") from None


def number(argument: str, value: Any) -> float:
    """`value` as a float, or ValueError naming the argument."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{argument}: got {value!r}, wanted a number") from None


def scale(value: Any) -> float | None:
    """A softmax_scale; None stands for the operation's default."""
    return None if value is None else number("softmax_scale", value)


def one_of(argument: str, value: Any, words: tuple[str, ...]) -> str:
    """`value` if it is one of `words`, or ValueError that lists them."""
    if value not in words:
        raise ValueError(f"{argument}: got {value!r}, wanted one of {', '.join(map(repr, words))}")
    return str(value)


def shape(argument: str, array: Any, *axes: str) -> tuple[int, ...]:
    """The shape of an array that has these axes, or ValueError."""
    found = getattr(array, "shape", None)
    if found is None:
        raise ValueError(f"{argument}: got an object of type {type(array).__name__}, wanted an array ({', '.join(axes)})")
    if len(found) != len(axes):
        raise ValueError(f"{argument}: got rank {len(found)}, shape {tuple(found)}, wanted ({', '.join(axes)})")
    return tuple(found)
