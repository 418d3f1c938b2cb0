"""One module of a package, without what the package imports first.

Python runs a package before any module of it: nvmath-python's imports 400 modules, for every library that it binds,
where the binding of one needs 80. While the module is imported, empty packages stand in the place of those above it.
They are gone after that: whoever imports the package then gets all of it, with the same module in it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any


class _Empty(ModuleType):
    """In the place of a package. Another thread that asks for something in it gets that of the package itself.

    ``together``: those that stand for it and for packages within it.
    """

    def __init__(self, name: str, path: list[str], together: list[_Empty]) -> None:
        super().__init__(name)
        self.__path__, self._thread, self._together = path, threading.get_ident(), together
        together.append(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or threading.get_ident() == self._thread:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        _remove(self._together)
        return getattr(importlib.import_module(self.__name__), name)


def _remove(stand_ins: list[_Empty]) -> None:
    for each in stand_ins:
        if sys.modules.get(each.__name__) is each:
            sys.modules.pop(each.__name__, None)


def module_alone(name: str) -> Any:
    """The module of that dotted name; with all of its package where that is imported already, or where it must be."""
    top, *inner = name.split(".")[:-1]
    spec = None if name in sys.modules or top in sys.modules else importlib.util.find_spec(top)
    if spec is None or spec.submodule_search_locations is None:
        return importlib.import_module(name)
    folders, above, stand_ins = list(spec.submodule_search_locations), [top], list[_Empty]()
    _Empty(top, folders, stand_ins)
    for part in inner:
        folders, above = [f"{folder}/{part}" for folder in folders], [*above, part]
        _Empty(".".join(above), folders, stand_ins)
    for each in stand_ins:
        sys.modules.setdefault(each.__name__, each)
    try:
        with contextlib.suppress(Exception):  # of a release that is put together otherwise: then by its package
            return importlib.import_module(name)
    finally:
        _remove(stand_ins)
    return importlib.import_module(name)
