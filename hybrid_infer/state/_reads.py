"""Which attributes a capture read: the objects of a twin note every look-up while they are traced.

A twin's objects are given a subclass of their own class whose only addition is that note, and one of assignments. It is
put on copies alone, so the live program never sees it.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Generic

from hybrid_infer.fingerprint._namespaces import dunder
from hybrid_infer.objects import _origin
from hybrid_infer.objects._state import ABSENT, is_slot

#: For which tracers look on any object, to see whether it is a function.
_OF_FUNCTIONS = frozenset({*dir(types.FunctionType), "__wrapped__", "__self__", "__func__", "__hybrid_infer__"})


def of_python(value: Any, name: str) -> bool:
    """Is it a name of Python's, of which all that counts is known with the class? Not where the program uses it."""
    if not dunder(name) or name == "__dict__":
        return False
    if name in getattr(value, "__dict__", ()):
        return name == "__hybrid_infer__"
    if any(is_slot(vars(base).get(name)) for base in type(value).__mro__):
        return False  # a slot
    return name in _OF_FUNCTIONS or name.startswith("___") or any(name in vars(base) for base in type(value).__mro__)


class _Looked:
    """The ``names`` looked up on an object, and those of them that were when it held there what it did at the start.

    ``assigned``: names that something was assigned to, be it what was there before.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.first: set[str] = set()
        self.assigned: set[str] = set()
        self.ours = False  # is the look-up under way one that no program has asked for?
        self.asked = ""  # the name that it is for
        self._start: dict[str, Any] = {}

    def begin(self, value: Any) -> None:
        self._start = _held(value)

    def add(self, value: Any, name: str) -> None:
        self.names.add(name)
        if name not in self.first and _held(value, name).get(name, ABSENT) is self._start.get(name, ABSENT):
            self.first.add(name)


class Recorder:
    """Notes of the names looked up on each of a set of objects."""

    def __init__(self) -> None:
        self.looked: dict[int, _Looked] = {}
        self._kept: list[Any] = []
        #: What was assigned to the class of a watched object, and thereby not to the program's class.
        self.assigned: list[str] = []

    def watch(self, objects: Iterable[Any]) -> list[Any]:
        """Start to note; returns the objects whose class cannot be replaced: what they give is guarded as a whole."""
        left = []
        for value in objects:
            recording = _recording(type(value))
            if recording is None:
                left.append(value)
                continue
            try:
                object.__setattr__(value, "__class__", recording)
            except TypeError:  # its memory layout is its own: slots, or a class written in C
                left.append(value)
                continue
            self.looked[id(value)] = _SINKS[id(value)] = _Looked()
            self._kept.append(value)
        return left

    def begin(self) -> None:
        """What the objects hold now is what they hold at the start."""
        for value in self._kept:
            self.looked[id(value)].begin(value)

    def first(self, value: Any) -> set[str]:
        """The names that were looked up on an object before anything else was assigned there."""
        note = self.looked.get(id(value))
        return set() if note is None else note.first

    def stop(self) -> None:
        for value in self._kept:
            recording = type(value)
            _SINKS.pop(id(value), None)
            object.__setattr__(value, "__class__", recording.__mro__[1])
            for name in vars(recording).keys() - _BODIES[recording]:
                if name not in CACHED:
                    self.assigned.append(f"{recording.__qualname__}.{name}")
                type.__delattr__(recording, name)


#: What is asked of an instance that is copied or pickled: all of its attributes are read, by code in C.
_COPIED = frozenset({"__reduce__", "__reduce_ex__", "__getstate__"})
#: What Python itself notes on a class when an instance is copied or pickled first.
CACHED = frozenset({"__slotnames__"})

_SINKS: dict[int, _Looked] = {}
#: Recording classes, which would keep their bases alive if they were kept.
_CLASSES: weakref.WeakKeyDictionary[type, weakref.ref[type] | None] = weakref.WeakKeyDictionary()
#: The names that a recording class is made with.
_BODIES: weakref.WeakKeyDictionary[type, frozenset[str]] = weakref.WeakKeyDictionary()


def _held(value: Any, only: str | None = None) -> dict[str, Any]:
    """The attributes of an object and its buffers, or one of them."""
    box = object.__getattribute__(value, "__dict__")
    buffers = box.get("_buffers")
    boxes = [buffers, box] if isinstance(buffers, dict) else [box]
    return {key: each[key] for each in boxes for key in (each if only is None else (only,)) if key in each}


class _Blank:
    """A base to be replaced: so a class comes to be without its family's ``__init_subclass__`` being run."""


def can_note(kind: type) -> bool:
    """Can an instance be given a recording class? Not where its own is written in C."""
    return bool(kind.__flags__ & _HEAP) and not kind.__flags__ & _IMMUTABLE and _recording(kind) is not None


def notes(kind: type) -> bool:
    """Is it a recording class, which copies of a watched object are of as well?"""
    return kind in _BODIES


_IMMUTABLE, _HEAP = 1 << 8, 1 << 9


def _recording(kind: type) -> type | None:
    known = _CLASSES.get(kind)
    made = None if known is None else known()
    if made is None and (known is not None or kind not in _CLASSES):
        made = _make(kind)
        _CLASSES[kind] = None if made is None else weakref.ref(made)
        if made is not None:
            _BODIES[made] = frozenset(vars(made))
    return made


def by_program(frame: types.FrameType) -> bool:
    """Frameworks look into the dict of a layer for each attribute; of others it tells that all of it is read."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] not in ("torch", "paddle", "hybrid_infer")


class _Behind:
    """Behind a class with an accessor of its own, which may look for another name than it was asked for."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        sink = _SINKS.get(id(self))
        if sink is not None and name == "__dict__" and sink.asked != name and _of_library(self, sys._getframe(1)):
            return _Entries(self, sink)
        if sink is not None and not (name == "__dict__" and sink.ours):
            sink.add(self, name)
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _note_assigned(self, name)
        object.__setattr__(self, name, value)


def _of_library(value: Any, frame: types.FrameType) -> bool:
    """Is it the accessor of a library that is at work, whose code is known by its version?

    It is trusted to look into the dict by its methods and operators; what others make of one that is none is not known.
    """
    for base in type(value).__mro__:
        accessor = vars(base).get("__getattribute__")
        if getattr(accessor, "__code__", None) is frame.f_code:
            return _origin.of_object(base) not in (_origin.USER, _origin.PYTHON)
    return False


class _Entries:
    """The attributes of an object for its class's own accessor, which is asked for another one: it may look for a few.

    So does that of configurations in transformers, at each look-up.
    """

    __slots__ = ("_box", "_sink", "_value")

    def __init__(self, value: Any, sink: _Looked) -> None:
        self._value, self._sink = value, sink
        self._box: dict[str, Any] = object.__getattribute__(value, "__dict__")

    def _one(self, name: Any) -> dict[str, Any]:
        self._sink.add(self._value, str(name))
        return self._box

    def _all(self) -> dict[str, Any]:
        return self._one("__dict__")

    def __contains__(self, name: object) -> bool:
        return name in self._one(name)

    def __getitem__(self, name: str) -> Any:
        return self._one(name)[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self._one(name).get(name, default)

    def __setitem__(self, name: str, value: Any) -> None:
        _note_assigned(self._value, name)
        self._box[name] = value

    def __delitem__(self, name: str) -> None:
        del self._one(name)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __eq__(self, other: object) -> bool:
        return self._all() == other

    __hash__ = None  # type: ignore[assignment]  # as that of a dict

    def __getattr__(self, name: str) -> Any:
        return getattr(self._all(), name)


def _note_assigned(value: Any, name: str) -> None:
    sink = _SINKS.get(id(value))
    if sink is not None:
        sink.assigned.add(name)


def _by_user(function: Any) -> bool:
    module = str(getattr(function, "__module__", ""))
    return isinstance(function, types.FunctionType) and module.partition(".")[0] not in ("torch", "paddle")


def _looks_into_dicts(kind: type) -> bool:
    """May an accessor of the program's look into the dict of an instance, past all notes?"""
    for base in kind.__mro__:
        code = getattr(vars(base).get("__getattribute__"), "__code__", None)
        if code is None or _origin.of_object(base) != _origin.USER:
            continue
        named = {*code.co_names, *(each for each in code.co_consts if type(each) is str)}
        if not named.isdisjoint(("__dict__", "vars")):
            return True
    return False


def _of_its_own(kind: type) -> bool:
    """Has an instance a dict of attributes that its class does not make anew, or take from elsewhere, when asked?"""
    described = next((vars(base)["__dict__"] for base in kind.__mro__ if "__dict__" in vars(base)), None)
    return type(described) is types.GetSetDescriptorType


def _make(kind: type) -> type | None:
    if not _of_its_own(kind):
        return None
    look_up, assign, delete = kind.__getattribute__, kind.__setattr__, kind.__delattr__
    whole = _looks_into_dicts(kind)

    def __getattribute__(self: Any, name: str) -> Any:
        sink = _SINKS.get(id(self))
        if sink is None:
            return kind if name == "__class__" else look_up(self, name)  # type: ignore[call-arg]
        sink.ours = name == "__dict__" and not by_program(sys._getframe(1))
        if not sink.ours:
            sink.add(self, "__dict__" if name in _COPIED else name)
            if whole:
                sink.add(self, "__dict__")
        if name == "__class__":  # a dataclass is equal to another one of its own class, and a class is the program's
            return kind
        before, sink.asked = sink.asked, name
        try:
            return look_up(self, name)  # type: ignore[call-arg]
        finally:
            sink.asked = before

    def __setattr__(self: Any, name: str, value: Any) -> None:
        _note_assigned(self, name)
        assign(self, name, value)  # type: ignore[call-arg]

    def __delattr__(self: Any, name: str) -> None:
        sink = _SINKS.get(id(self))
        if sink is not None:
            sink.add(self, name)  # an error tells that there is none
        delete(self, name)  # type: ignore[call-arg]

    body = {
        "__getattribute__": __getattribute__,
        "__setattr__": __setattr__,
        "__delattr__": __delattr__,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "__slots__": (),
    }
    bases = (kind, _Behind) if _by_user(look_up) or _by_user(assign) else (kind,)
    try:
        # That of typing's own only looks for the parameters of a generic class.
        if not any("__init_subclass__" in vars(base) for base in kind.__mro__[:-1] if base is not Generic):
            return type(kind)(kind.__name__, bases, body)
        made = type(kind.__name__, (_Blank,), body)
        made.__bases__ = bases
        return made
    except Exception:
        # a metaclass with rules of its own; its instances are guarded as a whole instead
        return None
