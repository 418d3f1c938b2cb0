"""What objects of libraries only keep at hand: it follows from what else they hold, and no program sees it."""

from __future__ import annotations

import contextlib
from typing import Any

_NOTHING: frozenset[str] = frozenset()
_BY_CLASS = {
    ("pydantic._internal._decorators", "Decorator"): frozenset({"cls_ref"}),  # with an address in it
    ("pydantic._internal._utils", "LazyClassAttribute"): frozenset({"value"}),
    ("pydantic.type_adapter", "TypeAdapter"): frozenset({"core_schema"}),
}
#: Of all classes of a package: which flags hold for a node, and what was resolved once for good.
_BY_PACKAGE = {"omegaconf": frozenset({"_flags_cache", "resolver_cache"})}


def names(kind: type) -> frozenset[str]:
    """The names of such attributes and slots of the instances of a class."""
    module = str(kind.__module__)
    known = _BY_PACKAGE.get(module.partition(".")[0])
    return _BY_CLASS.get((module, kind.__qualname__), _NOTHING) if known is None else known


def of(value: Any, kind: type) -> frozenset[str]:
    """And those of an instance: a context manager made of a generator function makes another generator of it for each
    use as a decorator, until it is entered itself.
    """
    decorates = kind is contextlib._GeneratorContextManager and "func" in vars(value)
    return frozenset({"gen"}) if decorates else names(kind)
