"""Labelled ingredients to one key, and the encoding of plain data that it rests on.

The encoding is injective and type-exact: two values get the same bytes only if no Python code could tell them apart
by type, value or iteration order. So ``1``, ``True``, ``1.0``, ``0.0`` and ``-0.0`` all differ, a NaN counts by its
bits, and a dict counts with its order. Sets are sorted, since their order depends on the hash seed of the process.
"""

from __future__ import annotations

import enum
import logging
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import xxhash

from hybrid_infer._errors import HybridInferError
from hybrid_infer._fork_safe import cached_property
from hybrid_infer.objects import _origin

_log = logging.getLogger("hybrid_infer.keys")


TOO_DEEP = "it is nested too deeply"


class Unhashable(HybridInferError, TypeError):
    """A value has no canonical encoding.

    Fields: ``path`` (where in the data it stands, e.g. ``['scales'][3]``, empty at the top), ``what`` (its kind).
    """

    def __init__(self, path: str, what: str) -> None:
        super().__init__(path, what)
        self.path, self.what = path, what

    def __str__(self) -> str:
        return f"{self.path or 'the value'} cannot be part of a key: {self.what}"


def digest(data: object) -> str:
    """128-bit xxh3 of the canonical encoding of `data`, in hex.

    Plain data: None, bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, slice, range,
    Ellipsis, enum members, classes (by module and qualified name) and NumPy arrays, scalars and dtypes, nested in any
    way. Subclasses of these are not plain. Raises Unhashable, with the path of the offending element.
    """
    leaf = LEAVES.get(type(data))
    return hash_bytes(Encoder().encode(data) if leaf is None else leaf(data))


def hash_bytes(data: bytes) -> str:
    """128-bit xxh3, in hex."""
    return xxhash.xxh3_128_hexdigest(data)


def frame(tag: bytes, *parts: bytes) -> bytes:
    """`parts` behind a one-byte tag, each with its length, so that no two lists of parts give the same bytes."""
    return b"".join([tag, _size(len(parts)), *(x for part in parts for x in (_size(len(part)), part))])


_size = struct.Struct("<Q").pack
_double = struct.Struct("<d").pack


def _encode_int(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"i" + _size(len(raw)) + raw


def _encode_str(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return b"s" + _size(len(raw)) + raw


#: Each encoding starts with its own tag and carries its length: no encoding is the beginning of another, and
#: concatenations can be taken apart in one way only.
LEAVES: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: b"N",
    bool: lambda value: b"T" if value else b"F",
    int: _encode_int,
    float: lambda value: b"f" + _double(value),
    complex: lambda value: b"c" + _double(value.real) + _double(value.imag),
    str: _encode_str,
    bytes: lambda value: b"b" + _size(len(value)) + value,
    type(...): lambda value: b".",
    type(NotImplemented): lambda value: b"!",
}


class Encoder:
    """One walk over one piece of data. Subclasses widen what can be encoded through `other` and `cycle`."""

    def __init__(self) -> None:
        self.trail: list[str] = []
        self._open: dict[int, int] = {}

    @property
    def path(self) -> str:
        """Where the walk is, as Python would index it."""
        return "".join(self.trail)

    def encode(self, value: object) -> bytes:
        kind = type(value)
        leaf = LEAVES.get(kind)
        if leaf is not None:
            return leaf(value)
        container = _CONTAINERS.get(kind)
        if container is None:
            return self.other(value)
        depth = self._open.get(id(value))
        if depth is not None:
            return self.cycle(len(self._open) - depth)
        self._open[id(value)] = len(self._open)
        try:
            return container(self, value)
        except RecursionError:
            raise Unhashable(self.path, TOO_DEEP) from None
        finally:
            del self._open[id(value)]

    def other(self, value: object) -> bytes:
        """Encode what is neither a leaf nor a builtin container."""
        return self.special(value)

    def cycle(self, distance: int) -> bytes:
        """Encode a container met again inside itself, `distance` containers further up."""
        raise Unhashable(self.path, "it contains itself")

    def at(self, step: str, value: object) -> bytes:
        """Encode `value`, one step further down the path."""
        leaf = LEAVES.get(type(value))
        if leaf is not None:
            return leaf(value)
        self.trail.append(step)
        encoded = self.encode(value)
        # On an error the trail is left as it is: the walk ends there and the error has its path.
        self.trail.pop()
        return encoded

    def elements(self, values: Iterable[Any]) -> Iterable[Any]:
        """The elements of a set, for encoders whose result depends on the order in which they see things."""
        return list(values)

    def special(self, value: object) -> bytes:
        """Encode enum members, classes and NumPy's values; raises Unhashable for everything else."""
        kind = type(value)
        if isinstance(value, enum.Enum):
            name = getattr(value, "_name_", None)
            return frame(b"E", _class_path(kind), _encode_str(name) if name else self.at(".value", value.value))
        if isinstance(value, type):
            return frame(b"C", _class_path(value))
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            if kind is numpy.ndarray:
                return self._array(value)
            if isinstance(value, numpy.dtype):
                return self._dtype(value)
            if isinstance(value, numpy.generic) and kind.__module__.partition(".")[0] == "numpy":
                return frame(b"g", self._dtype(value.dtype), value.tobytes())
        raise Unhashable(self.path, f"a {kind.__module__}.{kind.__qualname__}")

    def _array(self, array: Any) -> bytes:
        numpy = sys.modules["numpy"]
        dtype = self._dtype(array.dtype)
        shape = self.encode(array.shape)
        if array.dtype.hasobject:
            return frame(b"o", dtype, shape, self.encode(list(array.flat)))
        # Content, not layout: a transposed view and its copy are the same value.
        flat = numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8) if array.size else b""
        return frame(b"a", dtype, shape, xxhash.xxh3_128_digest(flat))

    def _dtype(self, dtype: Any) -> bytes:
        fields = self.encode(_described(dtype)) if dtype.fields or dtype.subdtype else b""
        return frame(b"d", _encode_str(dtype.str), _encode_str(dtype.name), fields)


def _described(dtype: Any) -> object:
    """Fields with their offsets, and sub-arrays: what a structured dtype's `str` leaves out."""
    if dtype.subdtype:
        base, shape = dtype.subdtype
        return (base, shape)
    return tuple((name, *dtype.fields[name]) for name in dtype.names), dtype.itemsize


def _class_path(kind: type) -> bytes:
    return frame(b"p", _encode_str(_origin.in_every_process(kind.__module__)), _encode_str(kind.__qualname__))


def _encode_sequence(encoder: Encoder, values: Any) -> bytes:
    # Most elements are leaves, which need no path.
    parts = [
        encoder.at(f"[{i}]", value) if (leaf := LEAVES.get(type(value))) is None else leaf(value)
        for i, value in enumerate(values)
    ]
    return b"".join([b"t" if type(values) is tuple else b"l", _size(len(parts)), *parts])


def _encode_dict(encoder: Encoder, values: Any) -> bytes:
    parts = [b"m", _size(len(values))]
    # Copied at once: another thread may be writing.
    for key, value in list(values.items()):
        parts.append(encoder.at(f".keys()[{key!r}]" if type(key) not in LEAVES else "", key))
        parts.append(encoder.at(f"[{key!r}]" if type(key) in LEAVES else "[...]", value))
    return b"".join(parts)


def _encode_set(encoder: Encoder, values: Any) -> bytes:
    parts = sorted(encoder.at("{...}", value) for value in encoder.elements(values))
    return b"".join([b"z" if type(values) is frozenset else b"y", _size(len(parts)), *parts])


def _encode_slice(encoder: Encoder, value: Any) -> bytes:
    return b"/" + b"".join(encoder.at(f".{name}", getattr(value, name)) for name in ("start", "stop", "step"))


def _encode_range(encoder: Encoder, value: Any) -> bytes:
    return b"r" + b"".join(_encode_int(int(part)) for part in (value.start, value.stop, value.step))


_CONTAINERS: dict[type, Callable[[Encoder, Any], bytes]] = {
    tuple: _encode_sequence,
    list: _encode_sequence,
    dict: _encode_dict,
    set: _encode_set,
    frozenset: _encode_set,
    slice: _encode_slice,
    range: _encode_range,
}


@dataclass(frozen=True)
class Key:
    """A flat, ordered list of ``(label, digest)``, and the name of a directory made from it."""

    items: tuple[tuple[str, str], ...]

    @cached_property
    def hex(self) -> str:
        """128 bits over labels, digests and their order."""
        return digest(self.items)

    def differences(self, other: Key | Iterable[tuple[str, str]]) -> list[tuple[str, str | None, str | None]]:
        """``(label, digest here, digest there)`` for every label that is not the same in both; None: absent."""
        mine = dict(self.items)
        theirs = dict(other.items if isinstance(other, Key) else other)
        labels = [*mine, *(label for label in theirs if label not in mine)]
        return [(name, mine.get(name), theirs.get(name)) for name in labels if mine.get(name) != theirs.get(name)]


def method_key(ingredients: Mapping[str, object], before: Iterable[tuple[str, str]] = ()) -> Key:
    """The key over plain `ingredients`, in their order; each is logged at DEBUG on ``hybrid_infer.keys``.

    `before`: items of another key that come first, so that nobody has to digest them twice.

    Raises Unhashable, its path led by the label, for an ingredient that is not plain data.
    """
    items = [*before]
    for label, data in ingredients.items():
        try:
            items.append((label, digest(data)))
        except Unhashable as error:
            raise Unhashable(label + error.path, error.what) from None
    key = Key(tuple(items))
    if _log.isEnabledFor(logging.DEBUG):
        for label, value in items:
            _log.debug("%s: %s", label, value)
        _log.debug("key: %s", key.hex)
    return key
