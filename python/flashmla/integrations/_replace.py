"""Replacing names in loaded modules and modules not loaded yet, in a way that can be undone."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

_MISSING = object()


class Replacements:
    """Everything one install() has put somewhere. `undo` restores what was there, last change first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []
        # id of a replaced object -> that object, and its replacement under each name it had
        self._replaced: dict[int, tuple[Any, dict[str, Any]]] = {}

    def attribute(self, owner: ModuleType, name: str, value: Any) -> None:
        old = vars(owner).get(name, _MISSING)
        if old is value:
            return
        setattr(owner, name, value)
        if old is _MISSING:
            self._undo.append(lambda: vars(owner).pop(name, None))
            return
        self._undo.append(lambda: setattr(owner, name, old))
        self._replaced.setdefault(id(old), (old, {}))[1][name] = value

    def module(self, name: str, module: ModuleType) -> None:
        """Later imports of `name` give `module`; so does the attribute of its parent package, when that is loaded."""
        old = sys.modules.get(name)
        if old is not None:
            for key in set(vars(old)) & set(vars(module)):
                if not key.startswith("_"):
                    self._replaced.setdefault(id(vars(old)[key]), (vars(old)[key], {}))[1][key] = vars(module)[key]
        sys.modules[name] = module
        self._undo.append(lambda: sys.modules.pop(name, None) if old is None else sys.modules.update({name: old}))
        parent, _, child = name.rpartition(".")
        if parent in sys.modules:
            self.attribute(sys.modules[parent], child, module)

    def users(self, prefixes: Iterable[str]) -> None:
        """What loaded modules below these packages have taken from replaced ones by `from ... import`."""
        for module_name, module in list(sys.modules.items()):
            if module is None or not any(module_name == p or module_name.startswith(f"{p}.") for p in prefixes):
                continue
            for name, value in list(vars(module).items()):
                old, by_name = self._replaced.get(id(value), (_MISSING, {}))
                if old is not value:
                    continue
                if name in by_name:
                    self.attribute(module, name, by_name[name])
                elif len(by_name) == 1:  # imported under another name
                    self.attribute(module, name, next(iter(by_name.values())))

    def also_undo(self, action: Callable[[], object]) -> None:
        self._undo.append(action)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


def is_there(name: str) -> bool:
    """Whether a module is loaded or could be found, without importing it (its parent packages are)."""
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
