"""Attributes that a class leaves out of its copies, as Lightning's modules do with their trainer.

Nothing behind one is part of what a method works on, and no copy can tell what the method makes of it: where it looks
there, it is refused.
"""

from __future__ import annotations

import itertools
import types
import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import Any

_FRAMEWORKS = frozenset({"torch", "paddle"})
#: Whatever else a class of the program's may say about copies, of which it is not known what they leave out.
_OTHERS = ("__setstate__", "__deepcopy__", "__reduce__", "__reduce_ex__")
_COPYING = (*_OTHERS, "__getstate__")


#: What a class's ``__getstate__`` has left out, by its code and by the attributes that an object had. As it may take as
#: long as a save does, not each look at the state asks it; what a copy really has, a capture sees (see `lost`).
_KNOWN: weakref.WeakKeyDictionary[type, dict[tuple[Any, frozenset[str]], frozenset[str]]] = weakref.WeakKeyDictionary()
_SHAPES = 64


def names(value: Any) -> frozenset[str]:
    """The attributes of an object in whose place its copies have None, or nothing, by its class's ``__getstate__``."""
    kind: Any = type(value)
    if not _tells(kind):
        return frozenset()
    known = _KNOWN.setdefault(kind, {})
    shape = frozenset(name for name, held in list(vars(value).items()) if held is not None)
    found = known.get((kind.__getstate__.__code__, shape))
    if found is None:
        if len(known) >= _SHAPES:
            known.clear()
        found = known[kind.__getstate__.__code__, shape] = _asked(value)
    return found


def _tells(kind: type) -> bool:
    return _by_program(kind, "__getstate__") and not any(_by_program(kind, name) for name in _OTHERS)


def _asked(value: Any) -> frozenset[str]:
    try:
        state = value.__getstate__()
    except Exception:  # of which a copy tells
        return frozenset()
    if type(state) is not dict:
        return frozenset()
    return frozenset(name for name, held in vars(value).items() if held is not None and state.get(name) is None)


def lost(live: Any, memo: Mapping[int, Any]) -> tuple[str, str] | None:
    """Where a copy (by the id of its original) has not what the class was not found to leave out; as of `differing`."""
    for path, value in live.objects.items():
        copy = memo.get(id(value))
        if isinstance(value, (dict, list)) or copy is None or copy is value or not _tells(type(value)):
            continue
        known, state = live.left_out.get(path, ()), vars(copy)
        for name, held in list(vars(value).items()):
            if held is not None and state.get(name) is None and name not in known:
                return _told(live, (*path, name))
    return None


def differing(live: Any, copy: Any) -> tuple[str, str]:
    """Where the census of a copy is not that of the live object, in words, and what to look at."""
    mine, others = ([slot.path for slot in census.slots] for census in (live, copy))
    pairs = itertools.zip_longest(mine, others)
    path, found = next((path, other) for path, other in pairs if path != other)
    return _told(live, path or found or ())


def _told(live: Any, path: tuple[str, ...]) -> tuple[str, str]:
    above = [live.objects.get(path[:n]) for n in range(len(path), 0, -1)]
    named = [(type(each).__name__, name) for each in above for name in _COPYING if _by_program(type(each), name)]
    remedy = f"Check the {named[0][1]} of class {named[0][0]}" if named else "Check how it is copied"
    return f"a copy of the layer does not have the layer's structure, from {'.'.join(path)} on", remedy


def read(
    left_out: Mapping[tuple[str, ...], Collection[str]], looked: Mapping[tuple[str, ...], Collection[str]]
) -> Iterator[str]:
    """What a method that looked up these names may not be served for; of no object was all that it looked up missed."""
    for path, names in left_out.items():
        found = looked.get(path, ())
        for name in sorted(names):
            if name in found or "__dict__" in found:
                yield f"it reads {'.'.join((*path, name))}, which the __getstate__ of its class leaves out of copies"


def _by_program(kind: type, name: str) -> bool:
    found = getattr(kind, name, None)
    return isinstance(found, types.FunctionType) and found.__module__.partition(".")[0] not in _FRAMEWORKS
