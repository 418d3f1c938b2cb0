"""What a static model gives back in place of a class that this process has not imported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Record(dict[str, Any]):
    """The fields of a dataclass, by key, by attribute and by position.

    A field that is None is an attribute alone, as in the output classes of transformers.

    >>> found = Record(loss=None, logits=2, hidden=3)
    >>> found.logits, found["logits"], found[0], found.loss, list(found)
    (2, 2, 2, None, ['logits', 'hidden'])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = dict(*args, **kwargs)
        super().__init__({name: value for name, value in given.items() if value is not None})
        self.__dict__["_left_out"] = frozenset(given.keys() - self.keys())

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return super().__getitem__(name)
        if name in vars(self).get("_left_out", ()):
            return None
        raise AttributeError(f"the result has no field {name!r}; it has {', '.join(self)}")

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (int, slice)):
            return tuple(self.values())[key]
        return super().__getitem__(key)


class FieldTuple(tuple[Any, ...]):
    """The fields of a named tuple, by position and by attribute; made from (name, value) pairs.

    >>> found = FieldTuple([("left", 1), ("right", 2)])
    >>> left, right = found
    >>> left, found.right, found
    (1, 2, FieldTuple(left=1, right=2))
    """

    _fields: tuple[str, ...]

    def __new__(cls, items: Iterable[tuple[str, Any]] = ()) -> FieldTuple:
        pairs = list(items)
        made = super().__new__(cls, [value for _, value in pairs])
        made._fields = tuple(name for name, _ in pairs)
        return made

    def __getattr__(self, name: str) -> Any:
        names = vars(self).get("_fields", ())
        if name in names:
            return self[names.index(name)]
        raise AttributeError(f"the result has no field {name!r}; it has {', '.join(names)}")

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (list(zip(self._fields, self, strict=True)),)

    def __repr__(self) -> str:
        return f"FieldTuple({', '.join(f'{n}={v!r}' for n, v in zip(self._fields, self, strict=True))})"
