"""A check by identity, at every call, that nothing which a capture read has changed.

It runs right after an engine has swept the processor's caches, so what it costs is memory touched: one row for each
thing that is looked at, and loops over these, which cost less than a chain of iterators in C, few rows or many.
"""

from __future__ import annotations

import array
import ctypes
import functools
import logging
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from operator import is_, itemgetter
from typing import Any

from hybrid_infer.objects import _at_hand, _state
from hybrid_infer.objects._state import PLAIN

_ARRAY_WHOLE = 1 << 20  # bytes: larger arrays are sampled at each call and compared in full at a look-up


class Watch:
    """Collects what is to stay as it is.

    `leaves`: classes whose instances are compared by identity alone; `known`: ids of objects whose attributes, as far
    as they were read, are watched one by one; `code`: a check that a function still does what it did, None where that
    is watched elsewhere; `named`: names of such attributes of functions as count.
    """

    def __init__(
        self,
        leaves: tuple[type, ...],
        known: Collection[int] = (),
        code: Callable[[Any], Callable[[], bool]] | None = None,
        named: Collection[str] = (),
        carried: Mapping[int, Collection[str]] | None = None,
    ) -> None:
        """`carried`: entries of dicts, by the ids of these, that the method itself puts there at each call."""
        self._carried = carried or {}
        self._leaves = (*_LEAVES, *leaves)
        self._known = known
        self._code, self._named = code, named
        self._seen: set[int] = set()
        self._slots: dict[tuple[int, Any], tuple[Any, Any, Any]] = {}
        self._absent: dict[tuple[int, str], tuple[Any, str]] = {}
        self._namespaces: dict[Any, Any] = {}
        self._classes: list[tuple[Any, int, str, int]] = []
        self._lengths: list[tuple[Any, int]] = []
        self._contents: list[tuple[Collection[Any], tuple[Any, ...]]] = []
        self._arrays: list[tuple[Any, Any]] = []
        self._empty: list[Any] = []
        self._fields: list[tuple[Any, str, Any]] = []
        self._states: list[tuple[Any, dict[str, Any]]] = []
        #: Slots, which the class may have another attribute of the same name before, or keep under another name.
        self._members: list[tuple[Any, Any, Any]] = []
        self._kinds: list[tuple[Any, type]] = []
        self._typed: set[int] = set()
        self._cells: list[tuple[Any, Any]] = []
        self._buffers: list[tuple[Any, bytes]] = []
        self._checks: list[Callable[[], bool]] = []

    def namespace(self, kind: Any) -> Any:
        """The attributes of a class or module, as one object for all who ask: ``vars`` makes another one each time."""
        return self._namespaces.setdefault(kind, vars(kind))

    def slot(self, box: Any, key: Any, held: Any) -> None:
        """``box[key] is held``."""
        self._slots.setdefault((id(box), key), (box, key, held))

    def absent(self, box: Any, name: str) -> None:
        """``name not in box``."""
        self._absent.setdefault((id(box), name), (box, name))

    def length(self, box: Any) -> None:
        """As many elements as now, whichever they are."""
        self._lengths.append((box, len(box)))

    def order(self, box: dict[Any, Any]) -> None:
        """The same keys in the same order, whatever they hold."""
        self._contents.append((box, tuple(box)))

    def names(self, kind: Any) -> None:
        """A class or module has the attributes that it has now: another may hide that of a base, or be the one missed.

        As many of them, and the same last one, which any that is set anew would be.
        """
        namespace = self.namespace(kind)
        row = namespace, len(namespace), _last(namespace), len(namespace) - (_OF_COPIES in namespace)
        self._classes.append(row)
        if isinstance(kind, type):
            self._fields.append((kind, "__mro__", kind.__mro__))

    def hooks(self, box: Any) -> None:
        """The hooks in a dict are these, most often none."""
        if not box:
            self._empty.append(box)
            return
        self.length(box)
        for key, hook in box.items():
            self.slot(box, key, hook)

    def holds(self, check: Callable[[], bool]) -> None:
        """``check()``."""
        self._checks.append(check)

    def kind(self, value: Any) -> None:
        """``type(value)`` is what it is now."""
        self._kinds.append((value, type(value)))

    def state(self, value: Any, state: dict[str, Any]) -> None:
        """``vars(value) is state``: what is looked at there is not replaced as a whole."""
        if vars(value) is state:  # else a class makes another one each time
            self._states.append((value, state))

    def instance(self, value: Any, groups: Iterable[str] = ()) -> None:
        """The same of an instance that this must not keep, its class, and what stands under these names.

        Where there is any, its dict is not kept either: a layer may hold there what leads back to this.
        """
        try:
            reference, kind, state = weakref.ref(value), type(value), vars(value)
        except TypeError:
            return
        parts, number = [(group, state[group]) for group in groups if group in state], id(state)
        if not parts:
            self._checks.append(lambda: type(held := reference()) is kind and held.__dict__ is state)
            return
        held_there, before = itemgetter(*(group for group, _ in parts)), [part for _, part in parts]
        several = len(parts) > 1

        def unchanged() -> bool:
            held = reference()
            if type(held) is not kind or id(now := held.__dict__) != number:
                return False
            try:
                found = held_there(now)
            except KeyError:
                return False
            return all(map(is_, found, before)) if several else found is before[0]

        self._checks.append(unchanged)

    def member(self, value: Any, member: types.MemberDescriptorType, *, kept: bool = True) -> None:
        """What a slot of an object holds, which this must not keep unless `kept`."""
        held = _state.slot(member, value)
        if kept:
            self._members.append((member, value, held))
        else:
            reference = weakref.ref(value)
            self._checks.append(lambda: _state.slot(member, reference()) is held)
        self.contents(held)

    def cell(self, cell: types.CellType, held: Any) -> None:
        """What a variable of an enclosing function holds, or that it holds nothing."""
        if held is _state.ABSENT:
            self._checks.append(lambda: _state.cell_contents(cell) is held)
        self._cells.append((cell, held))

    def level(self, logger: logging.Logger) -> None:
        """Messages of the same levels are written."""
        before = logger.getEffectiveLevel()
        self._checks.append(lambda: logger.getEffectiveLevel() == before)

    def contents(self, value: Any) -> None:
        """A container, an array, a plain object or a function is not changed in place, nor is anything inside it."""
        queue = [value]
        while queue:
            value = queue.pop()
            kind = type(value)
            if kind in PLAIN or isinstance(value, self._leaves):
                continue
            if kind.__flags__ & _OF_PYTHON and id(value) not in self._typed:
                self._typed.add(id(value))
                self.kind(value)
            if isinstance(value, _MUTABLE):
                if id(value) in self._seen:
                    continue
                self._seen.add(id(value))
                carried = self._carried.get(id(value), ()) if isinstance(value, dict) else ()
                views = _views(value)
                for view in views[:1] if carried else views:
                    items = tuple(view)
                    self._contents.append((view, items))
                    queue.extend(item for item in items if type(item) not in PLAIN)
                entries: dict[Any, Any] = dict(zip(*views, strict=True)) if carried else {}
                for key in entries.keys() - set(carried):
                    self.slot(value, key, entries[key])
                    queue.append(entries[key])
                if isinstance(value, defaultdict):
                    self._fields.append((value, "default_factory", value.default_factory))
                    queue.append(value.default_factory)
            elif isinstance(value, (tuple, frozenset)):
                queue.extend(item for item in _state.content(value) if type(item) not in PLAIN)
            elif isinstance(value, types.FunctionType):
                if self._code is not None and id(value) not in self._seen:
                    self._seen.add(id(value))
                    self._checks.append(self._code(value))
                    self._of_function(value, queue)
                continue
            elif kind in _CARRIERS:
                if kind is functools.partial:  # its __setstate__ replaces all that it holds
                    self._fields += [(value, name, getattr(value, name)) for name in ("func", "args", "keywords")]
                    self._of_function(value, queue)
                queue += _CARRIERS[kind](value)
                continue
            elif id(value) in self._known:
                continue
            elif isinstance(value, functools.partial):
                queue += [value.func, value.args, value.keywords]
            elif isinstance(value, weakref.ref):
                self._referent(value, queue)
            else:
                self._memory(value, queue)
            state = getattr(value, "__dict__", None)
            if isinstance(state, dict) and "__hybrid_infer__" not in state:
                self.state(value, state)
                if at_hand := _at_hand.names(kind):
                    for name in state.keys() - at_hand:
                        self.slot(state, name, state[name])
                        queue.append(state[name])
                else:
                    queue.append(state)
            self._slotted(value, queue)

    def _of_function(self, function: Any, queue: list[Any]) -> None:
        """The attributes of a function, as far as code names them, and that there are no others."""
        state = vars(function)
        self.length(state)
        for name in state.keys() & self._named:
            self.slot(state, name, state[name])
            queue.append(state[name])

    def _referent(self, reference: weakref.ref[Any], queue: list[Any]) -> None:
        """What is referred to weakly is compared by its id, so that this does not keep it."""
        value = reference()
        before = id(value)
        self._checks.append(lambda: id(reference()) == before)
        if value is not None:
            queue.append(getattr(value, "__dict__", None))

    def _memory(self, value: Any, queue: list[Any]) -> None:
        """Numbers in memory: of an ndarray, an ``array.array``, what ctypes makes."""
        plain = next((base for base in type(value).__mro__ if base.__name__ == "ndarray"), None)
        if plain is not None:
            value = value if type(value) is plain else value.view(plain)  # of a matrix, of numbers that are masked
            self._arrays.append((value, _sample(value)))
            if value.dtype.hasobject:
                queue.extend(value.flat)
        elif isinstance(value, _BUFFERS):
            self._buffers.append((value, bytes(memoryview(value))))

    def _slotted(self, value: Any, queue: list[Any]) -> None:
        if id(value) in self._seen and not isinstance(value, _MUTABLE):
            return
        members = [(member, value, _state.slot(member, value)) for _, member in _state.members(type(value))]
        if members:
            self._seen.add(id(value))
            self._members += members
            queue.extend(held for *_, held in members if type(held) not in PLAIN)

    def check(self) -> Callable[[], bool]:
        """The check, cheap enough for every call.

        It may report a change where there is none (an equal object put in place of another), never the opposite.
        """
        kinds, absent, lengths, classes = self._kinds, [*self._absent.values()], self._lengths, self._classes
        slots, fields, states = [*self._slots.values()], [*self._fields, *self._attributes()], self._states
        views, within = [view for view, _ in self._contents], [item for _, items in self._contents for item in items]
        sizes = [len(items) for _, items in self._contents]
        checks, empty, rarer, nothing = self._checks, self._empty, self._rarer(), _state.ABSENT
        # What the attributes of layers have most of, and what code has: to ask a loop that has nothing to go through
        # costs as much as to look at one thing.
        of_layers, of_code = bool(kinds or slots or absent or states), bool(lengths or classes or views or fields)

        def unchanged() -> bool:
            try:
                if of_layers:
                    # Before the slots, which those of another class are no slots of.
                    for value, kind in kinds:
                        if type(value) is not kind:
                            return False
                    for box, key, held in slots:
                        if box[key] is not held:
                            return False
                    for box, name in absent:
                        if name in box:
                            return False
                    for value, state in states:
                        if value.__dict__ is not state:
                            return False
                if of_code:
                    for box, length in lengths:
                        if len(box) != length:
                            return False
                    for box, size, last, length in classes:
                        if (len(box) != size or next(reversed(box), "") != last) and (
                            len(box) - (_OF_COPIES in box) != length or _last(box) != last
                        ):
                            return False
                    # All containers as one, which is one when each is as long as it was.
                    if views and (
                        list(map(len, views)) != sizes or not all(map(is_, chain.from_iterable(views), within))
                    ):
                        return False
                    for owner, name, held in fields:
                        if getattr(owner, name, nothing) is not held:
                            return False
                if rarer is not None and not rarer():
                    return False
            # RuntimeError where a container grows under the walk; ValueError of a cell that was emptied, and
            # AttributeError of a slot.
            except (KeyError, IndexError, RuntimeError, ValueError, AttributeError):
                return False
            for check in checks:
                if not check():
                    return False
            return not (empty and any(empty))

        return unchanged

    def _rarer(self) -> Callable[[], bool] | None:
        """The check of what few methods have; None where there is none of it. It raises what such things raise."""
        if not (self._members or self._arrays or self._buffers):
            return None
        filled = [row for row in self._members if row[2] is not _state.ABSENT]
        unset = [(member, value) for member, value, held in self._members if held is _state.ABSENT]
        arrays, buffers = self._arrays, self._buffers

        def unchanged() -> bool:
            for member, value, held in filled:
                if _SLOT(member, value) is not held:
                    return False
            for member, value in unset:
                if _state.slot(member, value) is not _state.ABSENT:
                    return False
            for numbers, sample in arrays:
                if _sample(numbers) != sample:
                    return False
            return all(bytes(memoryview(buffer)) == content for buffer, content in buffers)

        return unchanged

    def _attributes(self) -> Iterator[tuple[Any, str, Any]]:
        """What cells hold, as attributes of theirs."""
        for cell, value in self._cells:
            if value is not _state.ABSENT:
                yield cell, "cell_contents", value


#: What a logger does with messages has no part in results; modules and classes are looked at name by name.
_LEAVES = (type, types.ModuleType, logging.Logger)
_MUTABLE = (dict, list, set, deque, bytearray, types.MappingProxyType)
_BASES = (OrderedDict, dict, list, set, deque, bytearray)
_BUFFERS: Any = (array.array, memoryview, ctypes.Array, ctypes.Structure, ctypes.Union, ctypes.c_int.__mro__[1])
_OF_PYTHON = 1 << 9  # the flag of classes that are made while the program runs, whose instances may get another class
_SLOT: Callable[[Any, Any], Any] = types.MemberDescriptorType.__get__
_OF_COPIES = "__slotnames__"  # which the first copy of an instance leaves on its class
#: Objects that stand for others, and which.
_CARRIERS: dict[type, Callable[[Any], Iterable[Any]]] = {
    types.MethodType: lambda value: (value.__func__, value.__self__),
    types.BuiltinMethodType: lambda value: (value.__self__,),
    types.MethodWrapperType: lambda value: (value.__self__,),
    functools.partial: lambda value: (value.func, value.args, value.keywords),
    property: lambda value: (value.fget,),
    staticmethod: lambda value: (value.__func__,),
    classmethod: lambda value: (value.__func__,),
    types.CellType: lambda value: (_state.cell_contents(value),),
    **dict.fromkeys(_state.VIEWS, lambda value: (value.mapping,)),
}


def _last(namespace: Any) -> str:
    """The name that was set last."""
    return next((name for name in reversed(namespace) if name != _OF_COPIES), "")


class _Past:
    """The elements of a container, past the overrides of its class."""

    def __init__(self, container: Any, base: Any) -> None:
        self._container, self._base = container, base

    def __len__(self) -> int:
        return int(self._base.__len__(self._container))

    def __iter__(self) -> Iterator[Any]:
        yield from self._base.__iter__(self._container)


def _views(value: Any) -> tuple[Any, ...]:
    """What a container holds, as collections that change as it does: of a mapping, keys and values."""
    if isinstance(value, types.MappingProxyType):
        return value, value.values()
    base: Any = next(each for each in type(value).__mro__ if each in _BASES)
    if issubclass(base, dict):
        return base.keys(value), base.values(value)
    return (value if type(value) is base else _Past(value, base),)


def _sample(array: Any) -> Any:
    flat = array.reshape(-1)
    if array.nbytes > _ARRAY_WHOLE:
        flat = flat[:: -(-flat.size // 4096)]
    return array.shape, array.dtype.str, flat.tobytes()
