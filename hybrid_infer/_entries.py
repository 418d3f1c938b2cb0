"""Dicts of settings that a layer holds: which of their entries a capture looked at, as it is noted of attributes.

``self.config["dropout"]`` depends on that entry, and not on the path or the number of the run beside it. A copy that is
traced holds a dict of a class derived from `dict` in the place of such a one, whose every way to its content is noted;
what looks at more than single entries depends on all of it, as before.
"""

from __future__ import annotations

import copy
import enum
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import is_
from typing import Any

from hybrid_infer._given import Returned
from hybrid_infer._state import PLAIN

_SINGLE = (type, types.FunctionType, enum.Enum, range, slice)
_OF_PYTHON = frozenset({"datetime", "decimal", "fractions", "pathlib", "uuid"})
_OF_FRAMEWORKS = frozenset({"dtype", "device"})
#: Stands among the names that were looked up for all of a dict.
ALL = "__dict__"
_SINKS: dict[int, set[str]] = {}
_DEPTH = 16
#: Code with these names hands what it is given to what knows dicts alone: tracers of torch, its trees.
_TRACERS = frozenset(
    {"cond", "while_loop", "scan", "associative_scan", "checkpoint", "vmap", "tree_map", "tree_flatten", "tree_leaves"}
)


def of_settings(value: Any) -> bool:
    """Is it a dict under texts of single values, and of lists and dicts of such, as no state is that a method computes?
    """
    if type(value) is not dict or not value or not all(type(key) is str for key in value):
        return False
    return all(type(held) in PLAIN or _plain(held, 0) for held in value.values())


def _plain(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind in PLAIN or isinstance(value, _SINGLE) or kind.__module__ in _OF_PYTHON or kind.__name__ in _OF_FRAMEWORKS:
        return True
    if kind not in (dict, list, tuple) or depth > _DEPTH:
        return False
    items: Any = (*value.keys(), *value.values()) if kind is dict else value
    return all(_plain(each, depth + 1) for each in items)


class Noting(dict[Any, Any]):
    """Such a dict in a copy."""

    __slots__ = ()

    def _entry(self, key: Any) -> dict[Any, Any]:
        sink = _SINKS.get(id(self))
        if sink is not None:
            sink.add(key if type(key) is str else ALL)
        return self

    def _whole(self) -> dict[Any, Any]:
        return self._entry(None)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return dict

    def __getitem__(self, key: Any) -> Any:
        return dict.__getitem__(self._entry(key), key)

    def get(self, key: Any, default: Any = None) -> Any:
        return dict.get(self._entry(key), key, default)

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self._entry(key), key)

    def copy(self) -> dict[Any, Any]:
        return dict(dict.items(self._whole()))

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return copy.deepcopy(self.copy(), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (self.copy(),)


def _noting_all(name: str) -> Any:
    method = getattr(dict, name)

    def looked(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self._whole(), *args, **kwargs)

    looked.__name__ = name
    return looked


#: Which have no part in what a dict holds, or make one.
_OTHERS = frozenset(
    {"__class__", "__class_getitem__", "__new__", "__init__", "__init_subclass__", "__subclasshook__", "fromkeys",
     "__getattribute__", "__setattr__", "__delattr__", "__doc__", "__hash__", "__dir__", "__sizeof__"}
)  # fmt: skip
for _name in dir(dict):
    if _name not in _OTHERS | vars(Noting).keys():
        setattr(Noting, _name, _noting_all(_name))
Noting.__name__, Noting.__qualname__, Noting.__module__ = "dict", "dict", "builtins"  # which code may ask for


def put_in(memo: dict[int, Any], values: Iterable[Any]) -> None:
    """Have a deep copy with this memo hold such dicts in the place of those of settings among the values."""
    found = [value for value in values if of_settings(value)]
    memo.update((id(value), Noting()) for value in found)
    for value in found:
        dict.update(memo[id(value)], {name: copy.deepcopy(held, memo) for name, held in value.items()})


class Notes:
    """What is looked up on the dicts of a copy while it is traced."""

    def __init__(self, objects: Mapping[tuple[str, ...], Any], watched: bool) -> None:
        self._dicts = {path: value for path, value in objects.items() if type(value) is Noting}
        self._looked: dict[int, set[str]] = {id(value): set() if watched else {ALL} for value in self._dicts.values()}

    def begin(self) -> None:
        _SINKS.update(self._looked)

    def stop(self) -> None:
        for number in self._looked:
            _SINKS.pop(number, None)

    def names(self) -> Iterator[tuple[tuple[str, ...], set[str], bool]]:
        """Of each dict by its path, the names of its entries that were looked up; does it count as a whole?"""
        for path, value in self._dicts.items():
            looked = self._looked[id(value)]
            yield path, looked, ALL in looked


    def plain(self, value: Any) -> Any:
        """A result, with other dicts in the place of such: to give one back is to look at all of it."""
        if not self._dicts:
            return value
        if type(value) is Returned:
            return Returned((_without(value[0], {}), value[1]))
        return _without(value, {})


def _without(value: Any, made: dict[int, Any]) -> Any:
    """`made`: what stands for each list and dict so far, by its id; one that stands in two places stays one."""
    kind = type(value)
    if kind not in (Noting, list, tuple, dict):
        return value
    if id(value) in made:
        return made[id(value)]
    if kind is Noting:
        entries: dict[Any, Any] = {}
        made[id(value)] = entries
        entries.update((name, _without(held, made)) for name, held in value.items())
        return entries
    made[id(value)] = value  # one that holds itself is no result
    items = value.values() if kind is dict else value
    found = [_without(each, made) for each in items]
    if not all(map(is_, found, items)):
        made[id(value)] = dict(zip(value, found, strict=True)) if kind is dict else kind(found)
    return made[id(value)]


def noted(subject: Any, compared: Callable[[Any], bool]) -> bool:
    """May dicts stand for others while a subject's code is traced? `compared`: may it ask for their class?

    Not where Paddle traces, which makes code of its own of all functions that it meets, these among them.
    """
    if subject.frontend.name != "torch" or compared({}) or not subject.names().isdisjoint(_TRACERS):
        return False
    return not subject.looks_up_on(dict)
