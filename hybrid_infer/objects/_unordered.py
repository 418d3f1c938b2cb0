"""The sets in a value, and the order that this process has them in."""

from __future__ import annotations

import enum
import functools
import itertools
import logging
import types
from collections.abc import Iterator
from random import Random
from typing import Any

from hybrid_infer.objects import _at_hand, _state

_LEAVES = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, logging.Logger, enum.Enum)
#: What has no attributes, and is no tensor or layer: most of a large table. Of a dict, keys of some kinds count too.
_BUILTIN, _KEYS = frozenset({list, tuple, dict}), frozenset({tuple, frozenset})
#: How often the elements of a set are put into another one in other orders, if they are few.
_TRIES, _FEW = 200, 64
_HASHES: tuple[Any, ...] = (object.__hash__, enum.Enum.__hash__)
_NUMBERS = frozenset({bool, int, float, complex})
#: Of whose elements hashes are asked: those of other classes may run code of the program.
_PLAIN = (str, bytes, type(None), int, float, complex)


def sets_in(value: Any, name: str, leaves: tuple[type, ...]) -> Iterator[tuple[str, list[Any]]]:
    """The elements of each set in a value that is known by a name, and the name of the attribute that leads there.

    They are read past what the class of a set overrides. `leaves` are classes of what is not looked into: of tensors
    and layers.

    >>> class Settings: pass
    >>> settings = Settings()
    >>> settings.names = {"a"}
    >>> list(sets_in([{"b"}, settings], "held", ()))
    [('held', ['b']), ('names', ['a'])]
    """
    seen: dict[int, Any] = {}  # by id, which is theirs as long as they are kept: some are made here
    left, leaves = [(name, value)], (*_LEAVES, *leaves)
    while left:
        name, held = left.pop()
        kind = type(held)
        if kind in _state.PLAIN or id(held) in seen or (kind not in _BUILTIN and isinstance(held, leaves)):
            continue
        seen[id(held)] = held
        if kind in _BUILTIN and (kind is not dict or _KEYS.isdisjoint(map(type, list(held)))):  # nothing beside it
            below = list(held.values()) if kind is dict else list(held)
            left += [(name, each) for each in reversed(below) if type(each) not in _state.PLAIN]
            continue
        inside: list[tuple[str, Any]] = []
        if isinstance(held, (dict, list, tuple, set, frozenset)):
            found = _state.content(held)
            if isinstance(held, set):
                yield name, [*set.__iter__(held)]
            elif isinstance(held, frozenset):
                yield name, [*frozenset.__iter__(held)]
            if isinstance(found, dict):
                inside += ((name, key) for key in list(found) if type(key) in (tuple, frozenset))
                found = found.values()
            inside += ((name, each) for each in list(found) if type(each) not in _state.PLAIN)
        elif isinstance(held, functools.partial):
            inside += ((name, each) for each in (held.func, *held.args, *held.keywords.values()))
        elif isinstance(held, types.MappingProxyType):
            inside.append((name, dict(held)))
        elif (native := _state.native_base(kind)) in _state.CONTENTS and native is not BaseException:
            inside.append((name, _state.CONTENTS[native](held)))
        state = getattr(held, "__dict__", None)
        if isinstance(state, dict):
            at_hand = _at_hand.of(held, kind)
            inside += ((str(key), each) for key, each in list(state.items()) if key not in at_hand)
        inside += _state.slots(held, kind)
        left += reversed(inside)


def hashes(found: Any) -> list[int]:
    """The hashes of plain elements of a set, on which the order of other sets of them depends."""
    return [hash(each) for each in found if type(each) in _PLAIN]


def hashes_in(value: Any) -> list[int]:
    """The hashes, in turn, of what is in a value and has another one in each process: texts, and what goes by address.

    >>> hashes_in([1, 2.0, (3,)]), len(hashes_in({"a": ["b", 1]}))
    ([], 2)
    """
    found: list[int] = []
    seen: dict[int, Any] = {}
    left = [value]
    while left:
        held = left.pop()
        kind = type(held)
        if kind in (str, bytes):
            found.append(hash(held))
        elif kind in _NUMBERS or id(held) in seen:
            continue
        elif isinstance(held, (list, tuple, set, frozenset, dict)):
            seen[id(held)] = held
            content = _state.content(held)
            left += reversed([*content, *content.values()] if isinstance(content, dict) else [*content])
        elif kind.__hash__ in _HASHES or (held is None and held is not value):
            found.append(hash(held))
    return found


def plain(found: Any) -> bool:
    """Does a set hold nothing but what a copy of it shares with it?"""
    return all(
        type(each) in _state.PLAIN
        or isinstance(each, (type, enum.Enum))
        or (type(each) in (tuple, frozenset) and plain(each))
        for each in found
    )


def copied(found: Any) -> Any:
    """A copy of such a set in the same order, where a way is found to make one: that depends on how it came to be."""
    if type(found) is frozenset:
        return found
    order = [*found]
    for made in itertools.chain((found.copy(), set(order), set(order[::-1])), _shuffled(order)):
        if [*made] == order:
            return made
    return set(order)


def _shuffled(order: list[Any]) -> Iterator[set[Any]]:
    random = Random(0)
    for _ in range(_TRIES if len(order) <= _FEW else 0):
        yield set(random.sample(order, len(order)))
        yield {*frozenset(random.sample(order, len(order)))}
