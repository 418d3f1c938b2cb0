"""What the code of a method can write to outside of its layer, as it was before a trace, and the way back to it.

Watched: the globals of the user's modules, the attributes of the user's classes and functions, closures, defaults, and
from there on containers, NumPy arrays, open files and the user's objects. Of an object of a library only the attributes
that the user's code mentions: what the library keeps for itself is no concern of the method's. An iterator cannot be
wound back and is refused.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer.fingerprint._fingerprint import Fingerprint
from hybrid_infer.objects import _origin, _streams, _undo
from hybrid_infer.objects._state import PLAIN, VIEWS, cell_contents
from hybrid_infer.state import _draws

_OBJECTS = 1 << 17  # what is reached beyond these is not looked at
_ARRAYS = 1 << 28  # bytes of NumPy arrays that are copied; of those beyond, a change is seen and not taken back
_LEAVES: tuple[type, ...] = tuple(PLAIN)
#: Libraries whose objects do no more than hold what they are given.
_HOLDERS = frozenset({"argparse", "collections", "queue", "types", "weakref"})
_CACHES = type(functools.lru_cache(lambda: None))
_SAMPLES: tuple[Any, ...] = ((), [], {}, {}.values(), {}.items(), set(), "", b"", range(0))
_ITERATORS: tuple[type, ...] = (
    types.GeneratorType, enumerate, zip, map, filter, reversed, *(type(iter(each)) for each in _SAMPLES),
)  # fmt: skip


class Reach:
    """A snapshot of what `code` names and of all that is held there.

    ``known`` holds the ids of objects that a twin stands for, which are left alone where code names them and watched
    where they are reached by another way, and ``ignored`` names of attributes that a tracer writes. ``held`` is code
    of functions that stay the program's own in a trace. Raises TraceError where the code reaches what cannot be taken
    back.
    """

    def __init__(
        self, code: Fingerprint, known: Collection[int], ignored: Collection[str] = (),
        held: Sequence[Fingerprint] = (),
    ) -> None:  # fmt: skip
        self._known, self._ignored = known, ignored
        self._named = code.attributes.union(*(each.attributes for each in held))
        self._assignable = {name for name in self._named if not name.startswith("__")}
        self._memories: list[tuple[str, _undo.Memory]] = []
        self._caches: list[tuple[Any, Any]] = []
        self._recalled = False
        self._seen: dict[int, Any] = {}
        self._kinds: dict[type, tuple[bool, Any]] = {}
        self._bytes = 0
        self._queue: deque[tuple[Any, str]] = deque()
        self._code(code)
        self._known = ()
        for each in held:
            self._code(each)
        self._follow()

    def _code(self, code: Fingerprint) -> None:
        self._globals(code)
        self._classes(code)
        for cell, _ in code.cells:
            self._remember("a variable of an enclosing function", _undo.content(cell))
            self._named_by_code(cell_contents(cell), "a variable of an enclosing function")
        for function, _, _, _ in code.functions:
            self._queue.append((function, function.__qualname__))
            for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
                self._named_by_code(value, f"a default of {function.__qualname__}")

    def _named_by_code(self, value: Any, name: str) -> None:
        if id(value) not in self._known:  # else the traced function is given its twin
            self._queue.append((value, name))

    def add(self, value: Any, name: str) -> None:
        """Watch one object more, and what it holds."""
        self._queue.append((value, name))
        self._follow()

    def _follow(self) -> None:
        while self._queue and len(self._seen) < _OBJECTS:
            self._hold(*self._queue.popleft())

    def _globals(self, code: Fingerprint) -> None:
        names: dict[int, tuple[Any, set[str]]] = {}
        functions = {id(function.__dict__) for function, _, _, _ in code.functions}
        for mapping, name, value in code.globals:
            if id(mapping) not in functions and mapping is not sys.modules:
                names.setdefault(id(mapping), (mapping, set()))[1].add(name)
            self._named_by_code(mapping.get(name, value), f"the global {name}")
        modules = {id(vars(module)): module.__name__ for module in code.modules}
        for mapping, known in names.values():
            self._remember(modules.get(id(mapping), "the global "), _undo.entries(mapping, known))

    def _classes(self, code: Fingerprint) -> None:
        names: dict[type, set[str]] = {}
        for kind, name, value in code.classes_read:
            names.setdefault(kind, set()).add(name)
            self._queue.append((vars(kind).get(name, value), f"{kind.__qualname__}.{name}"))
        for kind, known in names.items():
            self._remember(kind.__qualname__, _undo.class_attributes(kind, known))
            self._queue.append((kind, kind.__qualname__))

    def _remember(self, name: str, memory: _undo.Memory | None) -> None:
        if memory is not None:
            self._memories.append((name, memory))

    def _hold(self, value: Any, name: str) -> None:
        if isinstance(value, _LEAVES) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, types.ModuleType):
            if not _origin.of_object(value):
                self._remember(value.__name__, _undo.Entries(vars(value), self._assignable, dot=True))
            return
        if isinstance(value, type):
            for base in value.__mro__:
                if not _origin.of_object(base):
                    self._remember(base.__qualname__, _undo.class_attributes(base, self._assignable))
            return
        found = _undo.container(value)
        if found is not None:
            self._remember(name, found[0])
            self._queue.extend((item, name) for item in found[1] if not isinstance(item, _LEAVES))
        elif isinstance(value, (tuple, frozenset)):
            self._queue.extend((item, name) for item in value)
        elif _undo.is_array(value):
            self._bytes += value.nbytes
            self._remember(name, _undo.Numbers(value, full=self._bytes <= _ARRAYS))
        elif _is_iterator(value):
            raise TraceError(f"it uses an iterator ({name}), which cannot be wound back", "Use a list in its place")
        elif _streams.is_read(value):
            position = _streams.memory(value)
            if position is None:
                reason = f"it uses a stream ({name}), which cannot be wound back"
                raise TraceError(reason, "Read it outside of the method")
            self._remember(f"the position of {name}", position)
        elif isinstance(value, threading.local):
            raise TraceError(f"it uses variables of the thread's own ({name})", "Pass their values as arguments")
        elif (draws := _draws.memory(value)) is not None:
            self._remember(f"the random numbers of {name}", draws)
        elif isinstance(value, _CACHES):
            self._caches.append((value, value.cache_info()))
        self._queue.extend((item, name) for item in parts(value))
        self._attributes(value, name)

    def _attributes(self, value: Any, name: str) -> None:
        kind = type(value)
        if kind not in self._kinds:
            self._kinds[kind] = self._describe(kind)
        whole, members = self._kinds[kind]
        if members:
            slots = _undo.slots(value, members)
            self._remember(name, slots)
            self._queue.extend((held, f"{name}.{slot}") for slot, held in slots.before.items())
        try:
            state = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return
        if not isinstance(state, dict) or "__hybrid_infer__" in state:
            return
        entries = _undo.Entries(state, None if whole else self._named, self._ignored, dot=True)
        self._remember(name, entries)
        for key, held in entries.before.items():
            if type(held) not in PLAIN and (key in self._named or not _left_alone(held)):
                self._queue.append((held, f"{name}.{key}"))

    @staticmethod
    def _describe(kind: type) -> tuple[bool, Any]:
        """Are all attributes of such an object watched? And its slots."""
        whole = kind is not types.FunctionType and (
            not _origin.of_object(kind) or kind.__module__.partition(".")[0] in _HOLDERS
        )
        return whole, _undo.members(kind) if whole else {}

    def holds(self, value: Any) -> bool:
        """Is it, or may it be, an object that the code reached before the trace? Nobody sees what a cache holds.

        Known when all has been taken back.
        """
        return self._recalled or self._seen.get(id(value)) is value

    def seen(self) -> dict[int, Any]:
        """What is watched, by id."""
        return self._seen

    def changed(self) -> str | None:
        """The name of something that was written to since the snapshot."""
        for name, memory in self._memories:
            if (changed := memory.changed()) is not None:
                return _of(name, changed)
        return None

    def take_back(self) -> list[str]:
        """Undo every write since the snapshot, and say what was written to."""
        written = []
        for name, memory in self._memories:
            changed = memory.changed()
            if changed is not None:
                written.append(_of(name, changed))
                memory.restore()
        for cache, before in self._caches:
            info = cache.cache_info()
            self._recalled |= info != before
            if info.misses != before.misses:
                cache.cache_clear()  # of results computed by the trace from its own tensors
        return list(dict.fromkeys(written))


def _is_iterator(value: Any) -> bool:
    return (
        isinstance(value, _ITERATORS) or type(value).__module__ == "itertools" or _streams.is_iterator_in_c(value)
    )


def _left_alone(value: Any) -> bool:
    """Is it refused where code names it, and nothing where an object merely holds it?"""
    return isinstance(value, threading.local) or _streams.is_read(value) or _is_iterator(value)


def _of(name: str, changed: str) -> str:
    return name + (changed.lstrip(".") if name.endswith(" ") else changed)


def parts(value: Any) -> Iterator[Any]:
    """What a callable carries with it, and what others refer to."""
    if isinstance(value, types.MethodType):
        yield value.__self__
    elif isinstance(value, functools.partial):
        yield value.func
        yield from value.args
        yield from value.keywords.values()
    elif isinstance(value, (staticmethod, classmethod)):
        yield value.__func__
    elif isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
        if not isinstance(value.__self__, types.ModuleType):
            yield value.__self__
    elif isinstance(value, weakref.ref):
        yield value()
    elif isinstance(value, types.MappingProxyType):
        yield from value.values()
    elif isinstance(value, VIEWS):
        yield value.mapping
    elif isinstance(value, contextvars.ContextVar):
        with contextlib.suppress(LookupError):
            yield value.get()
