"""What a container holds beside its items or fields: a signature tells of none of it, and nothing makes it again."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from hybrid_infer.objects._state import ABSENT, slots

_BARE = (list, tuple, dict)


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
