"""What a copy of a layer shares with it, so that a trace on the copy meets the program's own.

Functions, with their variables and globals, and what is referred to weakly. Of layers that are met there, or where no
walk finds them (in a set, in slots), no look-up is noted: their changes would go unseen.
"""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hybrid_infer.fingerprint._fingerprint import Fingerprint
from hybrid_infer.objects import _state
from hybrid_infer.objects._state import PLAIN
from hybrid_infer.state import _census
from hybrid_infer.state._census import Census

_OURS = __name__.partition(".")[0]  # such as what an exported program is held by, which nothing changes
_Code = Callable[[Any], Fingerprint]


def layers(
    value: Any, census: Census, layer_type: type, code: _Code, noted: Callable[[Any], bool]
) -> Iterator[Any]:  # fmt: skip
    """Layers that are met by a value which a layer holds, and are not copied in the sight of a trace.

    `code`: of a function; `noted`: are the look-ups on a copy of such an object noted?
    """
    def entered(value: Any, shared: bool) -> bool:
        return not (isinstance(value, layer_type) or (not shared and id(value) in census.paths and noted(value)))

    for each, shared in _walk([value], entered):
        if isinstance(each, layer_type):
            if shared or id(each) not in census.paths:
                yield each
        elif isinstance(each, types.FunctionType):
            yield from (found.object for found in code(each).externals if isinstance(found.object, layer_type))


def shared(census: Census, frontend: Any, code: _Code) -> tuple[list[Fingerprint], list[Any]]:
    """What copies of all that layers hold have in common with it: the code of functions, and other objects."""
    layer_type = frontend.layer_type
    held: list[Any] = []
    for value in census.objects.values():
        if isinstance(value, layer_type):
            held += [box[name] for box, name in _census.items(value, True, Census(), frontend)]
        else:
            held.append(value)
    codes, others = [], []
    for each, common in _walk(held, lambda value, common: common or not isinstance(value, layer_type)):
        if isinstance(each, types.FunctionType):
            codes.append(code(each))
        elif common:
            others.append(each)
    return codes, others


def _walk(values: Iterable[Any], enter: Callable[[Any, bool], bool]) -> Iterator[tuple[Any, bool]]:
    """Values, and what they hold where `enter` says so; is each the same in a copy of what holds it?"""
    queue = [(value, False) for value in values]
    seen: dict[tuple[int, bool], Any] = {}
    while queue:
        value, common = queue.pop()
        if type(value) in PLAIN or isinstance(value, (type, types.ModuleType)) or (id(value), common) in seen:
            continue
        if type(value).__module__.partition(".")[0] == _OURS:
            continue
        if "__hybrid_infer__" in getattr(value, "__dict__", ()):  # its code is known by the method that it wraps
            continue
        seen[id(value), common] = value
        yield value, common
        if not isinstance(value, types.FunctionType) and enter(value, common):
            queue += [(each, common) for each in _copied(value)]
            queue += [(each, True) for each in _referred(value)]


def _copied(value: Any) -> Iterator[Any]:
    """What a copy of it has copies of."""
    if isinstance(value, dict):
        content = _state.content(value)
        yield from (*content.keys(), *content.values())
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield from _state.content(value)
    elif isinstance(value, types.MethodType):
        yield value.__self__
        function = value.__func__
        if inspect.getattr_static(type(value.__self__), getattr(function, "__name__", ""), None) is not function:
            yield function
    elif isinstance(value, staticmethod):
        yield value.__func__
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    if _census.has_state(value):
        yield from vars(value).values()
    yield from (held for _, held in _state.slots(value, type(value)))


def _referred(value: Any) -> Iterator[Any]:
    """What a copy of it refers to as well."""
    if isinstance(value, weakref.ref):
        yield value()
    elif isinstance(value, types.BuiltinMethodType):
        yield value.__self__
