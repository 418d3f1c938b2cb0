"""What a container holds beside its items or fields.

A signature tells of a `defaultdict`'s factory, of a `deque`'s greatest length and of the dict behind a
`MappingProxyType`, which the program may hold as well. It tells of none of the rest, and nothing makes that again.
"""

from __future__ import annotations

import dataclasses
import gc
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from hybrid_infer.objects._state import ABSENT, slots

_BARE = (list, tuple, dict)
#: What makes the values of a defaultdict, by name: classes whose instances are new, whatever the program does.
FACTORIES = {each.__name__: each for each in (bool, bytes, dict, float, frozenset, int, list, set, str, tuple)}
#: No import path that its class tells leads to it.
PROXY = "types:MappingProxyType"
#: Of which the fingerprint of code need not tell, nor does another one come to stand in their place.
STANDARD = frozenset({dict, OrderedDict, defaultdict, deque, MappingProxyType})
_BEHIND = frozenset({dict, OrderedDict, defaultdict})


def attribute(value: Any, kind: type) -> str | None:
    """The name of an attribute that a list, tuple or dict has beside its items; None if it has none."""
    if kind in _BARE:
        return None
    for name in getattr(value, "__dict__", ()):
        if _own(name):
            return str(name)
    return next((name for name, held in slots(value, kind) if held is not ABSENT and _own(name)), None)


def of_dataclass(value: Any, kind: type, fields: Sequence[dataclasses.Field[Any]]) -> str | None:
    """The same of a dataclass, whose fields are what it is made of.

    One that is a dict too has its fields as items, in their order, but for those that are None, as the outputs of
    transformers do.
    """
    names = {field.name for field in fields}
    for name in getattr(value, "__dict__", ()):
        if name not in names and _own(name):
            return str(name)
    for name, held in slots(value, kind):
        if name not in names and held is not ABSENT and _own(name):
            return name
    if isinstance(value, dict):
        expected = [(field.name, held) for field in fields if (held := getattr(value, field.name)) is not None]
        items = [*native(kind).items(value)]
        if len(items) != dict.__len__(value):  # put there past the order that its class keeps
            return "an item"
        for (name, held), (key, item) in zip_longest(expected, items, fillvalue=(None, None)):
            if name != key or held is not item:
                return f"[{name if key is None else key!r}]"
    elif isinstance(value, (list, tuple)) and len(value):
        return "[0]"
    return None


def native(kind: type) -> Any:
    """The dict of C that the items of a class of dicts are held by."""
    return OrderedDict if issubclass(kind, OrderedDict) else dict


def _own(name: Any) -> bool:
    """Is it an attribute of the program's, and none of Python's, such as the `__orig_class__` of ``Box[int]()``?"""
    return not str(name).startswith("__") or not str(name).endswith("__")


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
