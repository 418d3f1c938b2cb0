"""Something done right after a module is loaded, whoever imports it and whenever."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class Finder:  # not derived from importlib.abc, which takes long to import
    """Finds modules as the other finders do, and has `loaded` called with each that is loaded.

    It is in effect while it stands in ``sys.meta_path``, before the others.
    """

    def __init__(self, names: Collection[str], loaded: Callable[[ModuleType], None]) -> None:
        self._names, self._loaded = names, loaded

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loading(spec.loader, self._loaded)  # type: ignore[assignment]
                return spec
        return None


class _Loading:
    """Loads with another loader, which the module then names as its own."""

    def __init__(self, loader: Any, loaded: Callable[[ModuleType], None]) -> None:
        self._loader, self._loaded = loader, loaded

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._loader.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._loaded(module)
