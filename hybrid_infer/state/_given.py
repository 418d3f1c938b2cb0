"""Lists, dicts and objects that a call is given: what a method changes in them is part of what it computes.

A method that grows a cache which its caller passes (``cache.update(keys, values)``, ``cache["keys"] = ...``) is traced
on a copy of it, like all else. What has changed in the copy afterwards is returned beside the result, as `Returned`,
and put into the caller's own object after each call. So is the content of a tensor that it writes to (see `_written`).
"""

from __future__ import annotations

import dataclasses
import enum
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from hybrid_infer.objects import _beside, _state
from hybrid_infer.objects._state import PLAIN, same
from hybrid_infer.state import _mappings

_DICTS, _SEQUENCES = (dict, OrderedDict, defaultdict), (list, deque)
_LEAVES = PLAIN | {type}
_ABSENT = object()

#: (an object, the names of attributes that are gone, what it holds now: of attributes those that are new, else all);
#: with None in the middle, (a tensor, None, another one of its content); (the number of a carry, ``_carry.ASSIGNED``,
#: what it is now).
Change = tuple[Any, tuple[str, ...] | None, Any]


class Returned(tuple[Any, ...]):
    """(the result, a list of `Change`) of a call that changed what it was given."""

    __slots__ = ()


def objects(values: Sequence[Any], defaults: Sequence[Any] = ()) -> list[Any]:
    """The lists, dicts, proxies and objects in the values of a call, each once, in the order in which these hold them.

    As ``Signatures.key`` finds them: an object among the `defaults` is a constant.
    """
    found: dict[int, Any] = {}

    def walk(items: Any) -> None:
        for value in items:
            kind = type(value)
            if kind in _LEAVES or id(value) in found or isinstance(value, enum.Enum):
                continue
            if isinstance(value, tuple):
                walk(value)
            elif kind is types.MappingProxyType:
                if not any(value is default for default in defaults):
                    found[id(value)] = value
                    walk([_beside.behind(value)])
            elif isinstance(value, (list, dict)) or kind is deque:
                found[id(value)] = value
                walk(value.values() if isinstance(value, dict) else value)
            elif is_object(kind):
                if not any(value is default for default in defaults):
                    found[id(value)] = value
                    walk(_mappings.attributes(value, kind).values())
            elif not isinstance(value, type) and dataclasses.is_dataclass(value):
                found[id(value)] = value
                walk([getattr(value, field.name) for field in dataclasses.fields(value)])

    walk(values)
    return [*found.values()]


def parts(values: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """What stands in the values beside the objects that are given and whose changes are noted."""
    if not given:
        return [*values]
    ids, found, queue = {id(each) for each in given if _noted(type(each))}, [], [*values]
    seen: set[int] = set()
    while queue:
        value = queue.pop()
        if type(value) is tuple:
            queue.extend(value)
        elif type(value) is types.MappingProxyType:
            queue.append(_beside.behind(value))
        elif id(value) not in ids:
            found.append(value)
        elif id(value) not in seen:
            seen.add(id(value))
            queue.extend(_held(value, type(value)))
    return found


def _noted(kind: type) -> bool:
    """Are changes of an instance noted? Of another one, such as of a class derived from list, they are refused."""
    return kind in _SEQUENCES or kind in _DICTS or is_object(kind)


#: Whose objects stand for more than they hold: a tracer's numbers, generators, streams.
_FRAMEWORKS = frozenset({"torch", "paddle", "hybrid_infer"})
_OBJECTS: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def is_object(kind: type) -> bool:
    """Is an instance no more than its attributes? A layer or a function, which can be called, is no data."""
    known = _OBJECTS.get(kind)
    if known is None:
        called = any("__call__" in vars(base) for base in kind.__mro__)
        foreign = called or kind.__module__.partition(".")[0] in _FRAMEWORKS
        known = not foreign and not issubclass(kind, (list, tuple, dict, type))
        known = known and (_state.plain(kind) or _mappings.is_mapping(kind))
        _OBJECTS[kind] = known = known or kind is types.SimpleNamespace
    return known


def _held(value: Any, kind: type) -> Any:
    if kind in _SEQUENCES:
        return value
    return value.values() if kind in _DICTS else vars(value).values()


def called(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], given: Sequence[Any],
    written: Sequence[Any] = (), copy: Callable[[Any], Any] | None = None, carried: Any = None,
    stored: Collection[int] = (),
) -> Any:  # fmt: skip
    """The result of a function, as `Returned` where it changed what it was given.

    `written`: tensors among that which it writes to, of which `copy` makes another one. `carried`: where it keeps what
    it carries from call to call (see ``_carry.Boxes.changes``), of which a program stores to those `stored`.
    """
    if not given and not written and not carried:
        return function(*args, **kwargs)
    given = [each for each in given if _noted(type(each))]
    before = [_content(each) for each in given]
    carries = carried.held() if carried else ()
    value = function(*args, **kwargs)
    found = (_change(held, each) for held, each in zip(before, given, strict=True))
    changes = [change for change in found if change is not None]
    if copy is not None:
        changes += [(tensor, None, copy(tensor)) for tensor in written]
    if carried:
        changes += carried.changes(carries, stored)
    return Returned((value, changes)) if changes else value


def _content(value: Any) -> Any:
    return value.copy() if type(value) in _SEQUENCES or type(value) in _DICTS else vars(value).copy()


def _change(before: Any, value: Any) -> Change | None:
    if type(value) in _SEQUENCES:
        equal = len(before) == len(value) and all(map(same, before, value))
        return None if equal else (value, (), [*value])
    if type(value) in _DICTS:
        keys = [*before] == [*value] and all(map(same, before, value))
        equal = keys and all(map(same, before.values(), value.values()))
        return None if equal else (value, (), {**value})
    state = vars(value)
    gone = tuple(name for name in before if name not in state)
    new = {name: held for name, held in state.items() if not same(before.get(name, _ABSENT), held)}
    if [*state] != [*(name for name in before if name in state), *(name for name in new if name not in before)]:
        return value, (*before,), state.copy()  # one was dropped and put back, behind the others
    return (value, gone, new) if new or gone else None


def applied(found: Any, write: Callable[[Any, Any], Any], assign: Callable[[int, Any], Any] | None = None) -> Any:
    """The result of a call, when what it changed has been put into the objects that it was given.

    `write` puts the content of a tensor into another one; `assign` what is carried into the instance, of which without
    it nothing is changed.
    """
    if type(found) is not Returned:
        return found
    value, changes = found
    for each, gone, content in changes:
        if gone is None:
            write(each, content)
        elif type(each) is int:
            if assign is not None:
                assign(each, content)
        elif type(each) is list:
            each[:] = content
        elif type(each) is deque:
            each.clear()
            each.extend(content)
        elif type(each) in _DICTS:
            each.clear()
            each.update(content)
        else:
            state = vars(each)
            for name in gone:
                state.pop(name, None)
            state.update(content)
    return value


def result(found: Any) -> Any:
    """The same of a call that was given these objects themselves, so that they have changed already."""
    return found[0] if type(found) is Returned else found


def assigned(found: Any, number: int) -> list[Any]:
    """What is assigned to a carry."""
    changes = found[1] if type(found) is Returned else ()
    return [after for each, _, after in changes if type(each) is int and each == number]


def changed(found: Any) -> list[Any]:
    """The objects that a call changed."""
    return [each for each, _, _ in found[1]] if type(found) is Returned else []
