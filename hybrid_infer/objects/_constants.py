"""Plain values as JSON data and back, told apart by their types and bits: Python's, NumPy's, sets, slices, paths.

Exact numbers, moments and UUIDs are in `_standard`.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable
from typing import Any

from hybrid_infer.objects import _standard

_PLAIN: dict[type, Callable[[Any], Any]] = {
    type(None): lambda value: None,
    bool: lambda value: value,
    int: lambda value: value,
    str: lambda value: value,
    float: float.hex,
    complex: lambda value: (value.real.hex(), value.imag.hex()),
    bytes: bytes.hex,
}
_UNORDERED: object = object()
_PARTS: dict[type, Callable[[Any], Any]] = {
    tuple: lambda value: value,
    frozenset: lambda value: value if _steady(value) else (_UNORDERED,),
    slice: lambda value: (value.start, value.stop, value.step),
    range: lambda value: (value.start, value.stop, value.step),
}
_PATHS = {each.__name__: each for each in (
    pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath,
)}  # fmt: skip
#: What NumPy calls the type of its scalars of a class; None where no name leads back to it.
_NAMES: dict[type, str | None] = {}
_OF_TIME = ("datetime64", "timedelta64")  # the unit of each scalar is its own: `datetime64[D]`
#: What `encoded` calls Python's numbers and texts, and what else it takes by itself.
PLAIN = frozenset(kind.__name__ for kind in _PLAIN)
KINDS = frozenset({"ellipsis", "frozenset", "numpy", "path", "range", "set", "slice", "standard"})


def encoded(value: Any) -> tuple[str, Any] | None:
    """(what it is called, JSON data) of a constant; None where it is none. Tuples stand for lists, to be hashable."""
    kind = type(value)
    if kind is set:
        found = _parts("frozenset", value) if _steady(value) else None
        return None if found is None else ("set", found[1])
    return _encoded(value, kind)


def _encoded(value: Any, kind: type) -> tuple[str, Any] | None:
    plain = _PLAIN.get(kind)
    if plain is not None:
        return kind.__name__, plain(value)
    parts = _PARTS.get(kind)
    if parts is not None:
        return _parts(kind.__name__, parts(value))
    if value is ...:
        return "ellipsis", None
    if _PATHS.get(kind.__name__) is kind:
        return "path", (kind.__name__, str(value))
    name = _NAMES[kind] if kind in _NAMES else _named(kind)
    if name is not None:
        name = value.dtype.name if name in _OF_TIME else name
        return "numpy", (name, str.__str__(value) if name == "str_" else value.tobytes().hex())
    found = _standard.encoded(value, kind)
    return None if found is None else ("standard", found)


def _parts(name: str, values: Any) -> tuple[str, Any] | None:
    found = [_encoded(each, type(each)) for each in values]
    return None if None in found else (name, tuple(found))


def _named(kind: type) -> str | None:
    """What NumPy calls the element type of its scalars of a class, beside those that have bits of no meaning."""
    numpy = sys.modules.get("numpy")
    if numpy is None or kind.__module__ != "numpy" or not issubclass(kind, numpy.generic):
        return None
    name: str | None = None
    if kind is numpy.str_:
        name = "str_"
    elif issubclass(kind, (numpy.bool_, numpy.number, numpy.datetime64)) and not issubclass(
        kind, (numpy.longdouble, numpy.clongdouble)
    ):
        dtype = numpy.dtype(kind)
        name = dtype.name if numpy.dtype(dtype.name).type is kind else None
    _NAMES[kind] = name
    return name


def _steady(values: Any) -> bool:
    """Does a set have the same order in each process, and as one that is made of its elements in that order?

    Code may go through it. The order of texts depends on the seed of a process.
    """
    if len(values) > 1 and not all(type(each) in (int, bool) for each in values):
        return False
    return _in_order(type(values), [*values]) is not None


def _in_order(kind: Any, order: list[Any]) -> Any:
    """A set that goes through its elements in this order; None where it is not found out how to make one."""
    for way in (order, order[::-1], sorted(order) if len(order) > 1 else order):
        if [*(made := kind(way))] == order:
            return made
    return None


def unordered(value: Any) -> bool:
    """Is it a set of plain values that is no constant for its order alone?"""
    return type(value) in (set, frozenset) and encoded(value) is None and _parts("", value) is not None


def listed(data: Any) -> Any:
    """With lists in the place of tuples, as JSON has them."""
    return [*map(listed, data)] if isinstance(data, tuple) else data


def decoded(kind: str, data: Any) -> Any:
    """The way back. Raises LookupError for what is none of ours, or not to be had here."""
    if kind in ("NoneType", "bool", "str", "int"):
        return data
    if kind == "float":
        return float.fromhex(data)
    if kind == "complex":
        return complex(*map(float.fromhex, data))
    if kind == "bytes":
        return bytes.fromhex(data)
    if kind == "ellipsis":
        return ...
    if kind == "tuple":
        return tuple(decoded(*each) for each in data)
    if kind in ("frozenset", "set"):
        made = _in_order(frozenset if kind == "frozenset" else set, [decoded(*each) for each in data])
        if made is None:
            raise LookupError("a set has another order here")
        return made
    if kind in ("slice", "range"):
        return (slice if kind == "slice" else range)(*(decoded(*each) for each in data))
    if kind == "path" and data[0] in _PATHS:
        try:
            return _PATHS[data[0]](data[1])
        except NotImplementedError as fault:  # of another system
            raise LookupError(str(fault)) from fault
    if kind == "standard":
        return _standard.decoded(*data)
    if kind == "numpy":
        import numpy

        name, text = data
        return numpy.str_(text) if name == "str_" else numpy.frombuffer(bytes.fromhex(text), name)[0]
    raise LookupError(f"no constant of class {kind}")


def told(kind: str, data: Any) -> str:
    """A constant in words, as Python would show it."""
    try:
        return repr(decoded(kind, data))
    except LookupError:
        return f"{kind} {data}"
