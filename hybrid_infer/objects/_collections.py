"""Containers of the standard library that are no list, tuple or dict, and what they are beside their items.

A `defaultdict` has its factory, a `deque` its greatest length. A `MappingProxyType` is the dict behind it, which the
program may hold as well.
"""

from __future__ import annotations

import gc
from collections import OrderedDict, defaultdict, deque
from types import MappingProxyType
from typing import Any

#: What makes the values of a defaultdict, by name: classes whose instances are new, whatever the program does.
FACTORIES = {each.__name__: each for each in (bool, bytes, dict, float, frozenset, int, list, set, str, tuple)}
#: No import path that its class tells leads to it.
PROXY = "types:MappingProxyType"
#: Of which the fingerprint of code need not tell, nor does another one come to stand in their place.
STANDARD = frozenset({dict, OrderedDict, defaultdict, deque, MappingProxyType})
_BEHIND = frozenset({dict, OrderedDict, defaultdict})


def factory(value: defaultdict[Any, Any]) -> str | None:
    """The name of what makes the values of a defaultdict, None for nothing. Raises LookupError for the program's own.
    """
    made_by: Any = value.default_factory
    if made_by is None:
        return None
    name = getattr(made_by, "__name__", None) if isinstance(made_by, type) else None
    if FACTORIES.get(name or "") is not made_by:
        raise LookupError("a factory that is no class of Python's own")
    return name


def behind(value: MappingProxyType[Any, Any]) -> Any:
    """The dict that a proxy shows. Raises LookupError for another mapping, whose class says what is in it."""
    found = gc.get_referents(value)[0]
    if type(found) not in _BEHIND:
        raise LookupError("a proxy of what is no dict")
    return found


def form(value: Any) -> Any:
    """What of an object a method may change that is neither an item nor an attribute."""
    return type(value), value.default_factory if type(value) is defaultdict else None
