"""A check by identity, at every call, that nothing which a capture read has changed.

It runs right after an engine has swept the processor's caches, so what it costs is memory touched: flat lists walked
in C, one slot each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from operator import contains, getitem, is_
from typing import Any

_ARRAY_WHOLE = 1 << 20  # bytes: larger arrays are sampled at each call and compared in full at a look-up


class Watch:
    """Collects what is to stay as it is.

    `leaves`: classes whose instances are compared by identity alone; `known`: ids of objects whose attributes are
    watched one by one.
    """

    def __init__(self, leaves: tuple[type, ...], known: Collection[int] = ()) -> None:
        self._leaves = leaves
        self._known = known
        self._seen: set[int] = set()
        self._slots: dict[tuple[int, Any], tuple[Any, Any, Any]] = {}
        self._absent: dict[tuple[int, str], tuple[Any, str]] = {}
        self._namespaces: dict[type, Any] = {}
        self._lengths: list[tuple[Any, int]] = []
        self._contents: list[tuple[Collection[Any], tuple[Any, ...]]] = []
        self._arrays: list[tuple[Any, Any]] = []
        self._empty: list[Any] = []

    def namespace(self, kind: type) -> Any:
        """The attributes of a class, as one object for all who ask: ``vars`` makes another one each time."""
        return self._namespaces.setdefault(kind, vars(kind))

    def slot(self, box: Any, key: Any, held: Any) -> None:
        """``box[key] is held``."""
        self._slots.setdefault((id(box), key), (box, key, held))

    def absent(self, box: Any, name: str) -> None:
        """``name not in box``."""
        self._absent.setdefault((id(box), name), (box, name))

    def length(self, box: Any) -> None:
        """As many elements as now, whichever they are."""
        self._lengths.append((box, len(box)))

    def empty(self, box: Any) -> None:
        """``not box``."""
        self._empty.append(box)

    def contents(self, value: Any) -> None:
        """A container, an array or a plain object is not changed in place, nor is anything inside it."""
        queue = [value]
        while queue:
            value = queue.pop()
            if isinstance(value, (dict, list, set)):
                if id(value) in self._seen:
                    continue
                self._seen.add(id(value))
                views: Iterable[Any] = (value, value.values()) if isinstance(value, dict) else (value,)
                for view in views:
                    items = tuple(view)
                    self._contents.append((view, items))
                    queue.extend(item for item in items if type(item) not in _PLAIN)
            elif isinstance(value, (tuple, frozenset)):
                queue.extend(item for item in value if type(item) not in _PLAIN)
            elif type(value).__name__ == "ndarray":
                self._arrays.append((value, _sample(value)))
            elif id(value) not in self._known and hasattr(value, "__dict__") and not isinstance(value, self._leaves):
                queue.append(vars(value))

    def check(self) -> Callable[[], bool]:
        """The check, cheap enough for every call.

        It may report a change where there is none (an equal object put in place of another), never the opposite.
        """
        slots = list(self._slots.values())
        boxes, keys, held = ([row[i] for row in slots] for i in range(3))
        places, names = ([row[i] for row in self._absent.values()] for i in range(2))
        lengths, contents, arrays, empty = self._lengths, self._contents, self._arrays, self._empty

        def unchanged() -> bool:
            try:
                if not all(map(is_, map(getitem, boxes, keys), held)) or any(map(contains, places, names)):
                    return False
                for box, length in lengths:
                    if len(box) != length:
                        return False
                for view, items in contents:
                    if len(view) != len(items) or not all(map(is_, view, items)):
                        return False
            except (KeyError, IndexError, RuntimeError):  # the last where a container grows under the walk
                return False
            for array, sample in arrays:
                if _sample(array) != sample:
                    return False
            return not any(empty)

        return unchanged


_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def _sample(array: Any) -> Any:
    flat = array.reshape(-1)
    if array.nbytes > _ARRAY_WHOLE:
        flat = flat[:: flat.size // 4096]
    return array.shape, array.dtype.str, flat.tobytes()
