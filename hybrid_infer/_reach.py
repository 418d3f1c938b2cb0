"""What the code of a method can write to outside of its layer, as it was before a trace, and the way back to it."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from hybrid_infer._fingerprint import ABSENT

_DEPTH = 8
_ITEMS = 4096  # in larger containers no change is looked for


class Reach:
    """A snapshot of globals, class attributes, closure cells and what they hold.

    ``globals``, ``classes`` and ``cells`` are a fingerprint's; ``known`` holds the ids of objects that a twin stands
    for, which are left alone; ``is_users`` says whether a class is of the user's program: only its instances are
    looked into.
    """

    def __init__(
        self,
        globals: Iterable[tuple[Mapping[str, Any], str, Any]],
        classes: Iterable[tuple[type, str, Any]],
        cells: Iterable[tuple[types.CellType, Any]],
        known: Collection[int],
        is_users: Callable[[type], bool],
    ) -> None:
        self._known, self._is_users = known, is_users
        self._globals = [(mapping, name, mapping.get(name, ABSENT)) for mapping, name, _ in globals]
        self._classes = [(kind, name, vars(kind).get(name, ABSENT)) for kind, name, _ in classes]
        self._cells = [(cell, _content(cell)) for cell, _ in cells]
        #: id -> (name, container, a copy of what it held)
        self._held: dict[int, tuple[str, Any, Any]] = {}
        for _, name, value in self._globals:
            self._hold(value, f"the global {name}", 0)
        for kind, name, value in self._classes:
            self._hold(value, f"{kind.__qualname__}.{name}", 0)
        for _, value in self._cells:
            self._hold(value, "a variable of an enclosing function", 0)

    def _hold(self, value: Any, name: str, depth: int) -> None:
        if depth > _DEPTH or id(value) in self._held or id(value) in self._known:
            return
        kind = type(value)
        inner: list[Any] = []
        if kind is tuple:
            inner = list(value)
        elif isinstance(value, (dict, list, set)):
            if len(value) > _ITEMS:
                return
            copied: Any = dict(value) if isinstance(value, dict) else list(value)
            self._held[id(value)] = (name, value, copied)
            inner = list(copied.values()) if isinstance(value, dict) else copied
        elif isinstance(value, types.FunctionType) or (self._is_users(kind) and hasattr(value, "__dict__")):
            state = vars(value)
            if isinstance(state, dict) and "__hybrid_infer__" not in state:
                self._hold(state, name, depth + 1)
            return
        for item in inner:
            self._hold(item, name, depth + 1)

    def take_back(self) -> list[str]:
        """Undo every write since the snapshot, and say what was written to."""
        written = []
        for mapping, name, value in self._globals:
            if mapping.get(name, ABSENT) is not value and isinstance(mapping, dict):
                written.append(f"the global {name}")
                _put_back(mapping, name, value)
        for kind, name, value in self._classes:
            if vars(kind).get(name, ABSENT) is not value:
                written.append(f"{kind.__qualname__}.{name}")
                if value is ABSENT:
                    delattr(kind, name)
                else:
                    setattr(kind, name, value)
        for cell, value in self._cells:
            if _content(cell) is not value:
                written.append("a variable of an enclosing function")
                if value is ABSENT:
                    del cell.cell_contents
                else:
                    cell.cell_contents = value
        for name, value, before in self._held.values():
            if not _same(value, before):
                written.append(name)
                value.clear()
                value.extend(before) if isinstance(value, list) else value.update(before)
        return list(dict.fromkeys(written))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def _put_back(mapping: dict[str, Any], name: str, value: Any) -> None:
    if value is ABSENT:
        mapping.pop(name, None)
    else:
        mapping[name] = value


def _same(value: Any, before: Any) -> bool:
    """Does a container hold the very objects that it held, in the same order?"""
    if len(value) != len(before):
        return False
    if isinstance(value, dict):
        return all(k is m and v is w for (k, v), (m, w) in zip(value.items(), before.items(), strict=True))
    if isinstance(value, set):
        return {id(item) for item in value} == {id(item) for item in before}
    return all(item is old for item, old in zip(value, before, strict=True))
