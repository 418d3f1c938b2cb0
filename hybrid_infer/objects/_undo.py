"""What single objects hold, remembered so that a change of it is seen and taken back: containers, attributes, arrays.

Contents are compared by identity, as a guard compares them; equal plain values are the same. What an object holds is
read and written past any override in a subclass. Only what differs is written back, since other threads may use the
object meanwhile.
"""

from __future__ import annotations

import array
import math
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

from hybrid_infer import _keys
from hybrid_infer.objects._state import ABSENT, cell_contents, same, slot


class Memory(Protocol):
    """One object as it was."""

    def changed(self) -> str | None:
        """None where it is as it was, else what of it is not, as it follows the object's name (may be empty)."""

    def restore(self) -> None:
        """Make it what it was."""


class Entries:
    """A dict; with `only`, just these keys of it, and none of those in `but`. `dot`: the keys are attributes."""

    def __init__(
        self, box: dict[Any, Any], only: Collection[Any] | None = None, but: Collection[Any] = (), *, dot: bool = False
    ) -> None:
        self._box, self._but, self._dot = box, but, dot
        self._only = only if only is None or isinstance(only, (set, frozenset)) else frozenset(only)
        self._native: Any = OrderedDict if isinstance(box, OrderedDict) else dict
        self._ordered = only is None and not but
        self.before = self._now()

    def _now(self) -> dict[Any, Any]:
        if self._only is not None:
            # Through the keys of the dict, which are fewer (`&` goes through those of a frozenset), and in one step:
            # other threads may add to it.
            keys = self._only.intersection(self._native.keys(self._box))
            found = {key: self._native.get(self._box, key, ABSENT) for key in keys if key not in self._but}
            return {key: value for key, value in found.items() if value is not ABSENT}  # one that is gone by now
        found = dict(self._native.items(self._box))
        for key in self._but:
            found.pop(key, None)
        return found

    def changed(self) -> str | None:
        now = self._now()
        for key in (*self.before, *(key for key in now if key not in self.before)):
            if not same(now.get(key, ABSENT), self.before.get(key, ABSENT)):
                return f".{key}" if self._dot else ""
        return "" if self._ordered and list(now) != list(self.before) else None

    def restore(self) -> None:
        native, now = self._native, self._now()
        for key in now.keys() - self.before.keys():
            native.pop(self._box, key, None)
        for key, value in self.before.items():
            if not same(now.get(key, ABSENT), value):
                native.__setitem__(self._box, key, value)
        if self._ordered and list(native.keys(self._box)) != list(self.before):
            native.clear(self._box)
            native.update(self._box, self.before)


class Items:
    """A list or deque."""

    def __init__(self, box: Any, native: Any) -> None:
        self._box, self._native = box, native
        self.before = list(native.__iter__(box))

    def changed(self) -> str | None:
        now = list(self._native.__iter__(self._box))
        return None if len(now) == len(self.before) and all(map(same, now, self.before)) else ""

    def restore(self) -> None:
        if self._native is list:
            list.__setitem__(self._box, slice(None), self.before)
        else:
            deque.clear(self._box)
            deque.extend(self._box, self.before)


class Bytes:
    """A bytearray or an array of numbers."""

    def __init__(self, box: bytearray | array.array[Any]) -> None:
        self._box = box
        self._before = memoryview(box).tobytes()

    def changed(self) -> str | None:
        return None if memoryview(self._box).tobytes() == self._before else ""

    def restore(self) -> None:
        if isinstance(self._box, bytearray):
            self._box[:] = self._before
        else:
            self._box[:] = array.array(self._box.typecode, self._before)


class Members:
    """A set."""

    def __init__(self, box: set[Any]) -> None:
        self._box = box
        self._order = [*set.__iter__(box)]
        self.before = set(self._order)

    def changed(self) -> str | None:
        return None if set(set.__iter__(self._box)) == self.before else ""

    def restore(self) -> None:
        if self._as_before():  # another table would have another order
            return
        set.intersection_update(self._box, self.before)
        set.update(self._box, self.before)
        for order in (self._order, self._order[::-1]):
            if not self._as_before():
                set.clear(self._box)
                set.update(self._box, order)

    def _as_before(self) -> bool:
        return [*map(id, set.__iter__(self._box))] == [*map(id, self._order)]


class Places:
    """Places that are read and written by functions: slots of an object, attributes of a class, a closure's cell."""

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        read: Callable[[str], Any],
        write: Callable[[str, Any], None],
        delete: Callable[[str], None],
    ) -> None:
        self._names, self._read, self._write, self._delete = names, read, write, delete
        self.before = self._now()

    def _now(self) -> dict[str, Any]:
        return {name: self._read(name) for name in self._names()}

    def _changes(self) -> Iterator[str]:
        now = self._now()
        for name in now | self.before:
            if not same(now.get(name, ABSENT), self.before.get(name, ABSENT)):
                yield name

    def changed(self) -> str | None:
        return next((f".{name}" if name else "" for name in self._changes()), None)

    def restore(self) -> None:
        for name in list(self._changes()):
            value = self.before.get(name, ABSENT)
            if value is ABSENT:
                self._delete(name)
            else:
                self._write(name, value)


def members(kind: type) -> dict[str, types.MemberDescriptorType]:
    """The ``__slots__`` of a class, by name."""
    return {
        name: member
        for base in reversed(kind.__mro__)
        if "__slots__" in vars(base)
        for name, member in vars(base).items()
        if isinstance(member, types.MemberDescriptorType)
    }


def slots(value: Any, members: Mapping[str, types.MemberDescriptorType]) -> Places:
    """What an object holds in these slots of its class."""
    return Places(
        lambda: members, lambda name: slot(members[name], value),
        lambda name, held: members[name].__set__(value, held), lambda name: members[name].__delete__(value),
    )  # fmt: skip


def class_attributes(kind: type, only: Collection[str]) -> Places:
    """The attributes of a class that have these names."""
    return Places(
        lambda: vars(kind).keys() & only, lambda name: vars(kind).get(name, ABSENT),
        lambda name, held: type.__setattr__(kind, name, held), lambda name: type.__delattr__(kind, name),
    )  # fmt: skip


def content(cell: types.CellType) -> Places:
    """A variable of an enclosing function."""

    def write(name: str, value: Any) -> None:
        cell.cell_contents = value

    def delete(name: str) -> None:
        del cell.cell_contents

    return Places(lambda: ("",), lambda name: cell_contents(cell), write, delete)


class Numbers:
    """A NumPy array: in full, or by a digest that shows a change and cannot take it back."""

    def __init__(self, value: Any, *, full: bool) -> None:
        self._value, self._full = value, full
        self._form = value.shape, value.dtype
        self._before = self._now()

    def _now(self) -> Any:
        plain = _numpy().asarray(self._value)
        if plain.dtype.hasobject:
            return plain.ravel().tolist()
        data = plain.tobytes()
        return data if self._full else _keys.hash_bytes(data)

    def changed(self) -> str | None:
        if (self._value.shape, self._value.dtype) != self._form:
            return ""
        now = self._now()
        equal = len(now) == len(self._before) and all(map(same, now, self._before)) if type(now) is list else None
        return None if (now == self._before if equal is None else equal) else ""

    def restore(self) -> None:
        shape, dtype = self._form
        if self._value.shape != shape and self._value.size == math.prod(shape):
            from hybrid_infer._unwarned import unwarned

            with unwarned(DeprecationWarning):  # NumPy 2.5 warns of it, and has no other way for each class of arrays
                self._value.shape = shape
        if self._value.shape != shape or self._value.dtype != dtype or not self._value.flags.writeable:
            return
        numpy, plain = _numpy(), _numpy().asarray(self._value)
        if dtype.hasobject:
            before = numpy.empty(len(self._before), dtype)
            before[:] = self._before
            plain[...] = before.reshape(shape)
        elif self._full:
            plain[...] = numpy.frombuffer(self._before, dtype).reshape(shape)


def _numpy() -> Any:
    return sys.modules["numpy"]


def is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def container(value: Any) -> tuple[Memory, Iterable[Any]] | None:
    """The memory of a container, and what is in it; None for anything else."""
    if isinstance(value, dict):
        entries = Entries(value)
        return entries, entries.before.values()
    if isinstance(value, set):
        return Members(value), ()
    if isinstance(value, (bytearray, array.array)):
        return Bytes(value), ()
    for native in (list, deque):
        if isinstance(value, native):
            items = Items(value, native)
            return items, items.before
    return None


def entries(mapping: Mapping[str, Any], only: Collection[str]) -> Memory | None:
    """The memory of these names in a module's globals; None for a mapping that cannot be written to."""
    return Entries(mapping, only, dot=True) if isinstance(mapping, dict) else None
