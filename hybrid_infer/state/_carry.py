"""Carries: what a method keeps from call to call in places that it assigns, such as the state of an LSTM.

An attribute (``self.state = ...``), a buffer that is replaced, an entry of a dict. To the rest of the library a carry
is an argument that no caller passes, behind those that one does, and its new value is one more change among the results
(see `_given`). A capture finds out which ones a method has (see ``Twin.carries``).
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hybrid_infer._parameters import Parameters
from hybrid_infer.objects._state import PLAIN, same

#: In the place of an attribute that is not there: plain data, as all that a signature holds.
ABSENT = "\0absent"
_LARGE = 2**31
_UNREAD = object()
_NONE: dict[str, Any] = {}
#: The middle of a change (see ``_given.Change``) whose first part is the number of a carry.
ASSIGNED = ("carry",)


class Carry(NamedTuple):
    """`key` of an object at `path` of the census: an attribute, or an ``entry`` of a dict.

    ``read``: does the method look at it? Else what it holds is no matter.
    """

    path: tuple[str, ...]
    entry: bool
    key: str
    read: bool

    @property
    def place(self) -> tuple[str, ...]:
        return (*self.path, self.key)

    @property
    def name(self) -> str:
        return ".".join(self.place)


class Carries(Parameters):
    """The parameters of a method with its carries behind them."""

    def __init__(self, own: Parameters, carries: Sequence[Carry]) -> None:
        vars(self).update(vars(own))
        self.own, self.carries = own, tuple(carries)
        self.names = [*own.names, *(carry.name for carry in carries)]
        self.defaults = (*own.defaults, *[self.missing] * len(carries))

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """Without the carries, which only an instance has (see ``Boxes.values``)."""
        return self.own.bind(args, kwargs)

    def unbind(self, values: Sequence[Any], given: int, names: Collection[str]) -> tuple[list[Any], dict[str, Any]]:
        return self.own.unbind(values[: len(self.own.names)], given, names)

    def complete(self, values: Sequence[Any], given: Any = None) -> Sequence[Any]:
        return self.own.complete(values, given)

    def style(self, values: Sequence[Any]) -> tuple[int, Collection[str]]:
        return self.own.style(values[: len(self.own.names)])

    def carried(self, values: Sequence[Any]) -> Sequence[Any]:
        return values[len(self.own.names) :]


class LargeInteger:
    """Stands for an integer of which a graph cannot compute the next one: no signature takes it, so eager code does."""


def _in_range(value: Any) -> Any:
    """A value as it is carried; a product of integers below this is one of 64 bits."""
    if type(value) is int:
        return value if -_LARGE < value < _LARGE else LargeInteger()
    if type(value) is tuple and any(type(item) is int for item in value):
        return tuple(map(_in_range, value))
    return value


class _Place:
    """One of them: where an object keeps it; ``owner`` gives the object, which this does not keep."""

    def __init__(self, carry: Carry, holder: Any) -> None:
        self.key = carry.key
        self.owner: Callable[[], Any] = (lambda: holder) if carry.entry else weakref.ref(holder)
        self.entry = carry.entry

    def boxes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Where it is looked for, asked anew each time: a program may replace these dicts as well."""
        owner = self.owner()
        if self.entry or owner is None:
            return ({} if owner is None else owner), _NONE
        box = vars(owner)
        #: Frameworks keep attributes that are tensors, but no parameters, in a dict of their own.
        buffers = box.get("_buffers")
        return box, buffers if isinstance(buffers, dict) else _NONE

    def found(self) -> tuple[dict[str, Any], Any]:
        """What is there, and in which dict."""
        box, buffers = self.boxes()
        if self.key in box:
            return box, box[self.key]
        return (buffers, buffers[self.key]) if self.key in buffers else (box, ABSENT)

    def put(self, box: dict[str, Any], value: Any) -> None:
        """Have it found in one of the dicts, as no program would do."""
        for each in self.boxes():
            if each is not box or is_absent(value):
                each.pop(self.key, None)
        if not is_absent(value):
            box[self.key] = value

    def assign(self, value: Any) -> None:
        """As a program does."""
        owner = self.owner()
        if self.entry or owner is None or is_absent(value):
            self.put(self.boxes()[0], value)
        else:
            setattr(owner, self.key, value)


class Boxes:
    """Where one instance, or a copy of it, holds the carries: `objects` are those of its census."""

    def __init__(self, carries: Sequence[Carry], objects: Mapping[tuple[str, ...], Any]) -> None:
        self.carries = tuple(carries)
        self._places = [_Place(carry, objects[carry.path]) for carry in carries]

    def __bool__(self) -> bool:
        return bool(self.carries)

    def same(self, other: Boxes) -> bool:
        """Are they the places of the same instance, and still there?"""
        pairs = zip(self._places, other._places, strict=True)
        return self.carries == other.carries and all(a.owner() is b.owner() for a, b in pairs)

    def held(self) -> list[Any]:
        """What is in these places."""
        return [place.found()[1] for place in self._places]

    def values(self) -> tuple[Any, ...]:
        """The same, as far as the method looks at it."""
        pairs = zip(self._places, self.carries, strict=True)
        return tuple(_in_range(place.found()[1]) if carry.read else None for place, carry in pairs)

    def unread(self) -> list[Carry]:
        return [carry for carry in self.carries if not carry.read]

    def assign(self, number: int, value: Any) -> None:
        """Have one of them hold something, as if a program had assigned it."""
        self._places[number].assign(value)

    @contextlib.contextmanager
    def holding(self, values: Sequence[Any]) -> Iterator[None]:
        """Have a copy that a trace runs on hold these `values`, and an object of no use where the method does not look.
        """
        before = [place.found() for place in self._places]
        for place, (box, _), carry, value in zip(self._places, before, self.carries, values, strict=True):
            place.put(box, value if carry.read else _UNREAD)
        try:
            yield
        finally:
            for place, (box, held) in zip(self._places, before, strict=True):
                place.put(box, held)

    def take(self, values: Sequence[Any]) -> None:
        """Have a copy hold `values` from now on."""
        for number, (carry, value) in enumerate(zip(self.carries, values, strict=True)):
            if carry.read:
                self.assign(number, value)

    def changes(self, before: Sequence[Any], stored: Collection[int] = ()) -> list[tuple[int, Any, Any]]:
        """What has been assigned; that a program assigns to `stored` is told where it cannot be seen."""
        now = enumerate(zip(before, self.held(), strict=True))
        return [
            (n, ASSIGNED, after)
            for n, (held, after) in now
            if not same(held, after) or (n in stored and not self.carries[n].read)
        ]


def is_absent(value: Any) -> bool:
    return type(value) is str and value == ABSENT


def simple(value: Any, leaf: Callable[[Any], bool], *, containers: bool) -> bool:
    """Can a carry hold it: plain data, what is a `leaf`, tuples of these, and `containers`, where it is only written?
    """
    if type(value) in PLAIN or leaf(value):
        return True
    inside: Iterable[Any] | None = value if isinstance(value, tuple) else None
    if containers and type(value) in (list, dict):
        inside = value.values() if type(value) is dict else value
    return inside is not None and all(simple(item, leaf, containers=containers) for item in inside)


def constant(value: Any) -> bool:
    """Would a static model take it in as it is? To be assigned such another one at each call, it would serve one each.
    """
    return type(value) in (float, complex, str, bytes) or (isinstance(value, tuple) and any(map(constant, value)))


class Found(Exception):
    """A method was found to have carries."""

    def __init__(self, carries: Sequence[Carry]) -> None:
        super().__init__(", ".join(carry.name for carry in carries))
        self.carries = tuple(carries)


def adopt(parameters: Parameters, found: Sequence[Carry]) -> None:
    """Raises Found where a method has carries that its parameters do not tell of."""
    carries = joined(parameters.carries, found)
    if carries != parameters.carries:
        raise Found(carries)


def joined(known: Sequence[Carry], found: Iterable[Carry]) -> tuple[Carry, ...]:
    """All of both, each once; one that is read somewhere is read."""
    carries = {carry.place: carry for carry in known}
    for carry in found:
        old = carries.get(carry.place)
        carries[carry.place] = carry if old is None else old._replace(read=old.read or carry.read)
    return tuple(carries.values())
