"""A walk over what a method's state consists of: layers, plain objects, containers and the tensors in them."""

from __future__ import annotations

import contextvars
import enum
import functools
import logging
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hybrid_infer.objects import _at_hand, _left_out, _origin, _state, _undo
from hybrid_infer.objects._state import PLAIN
from hybrid_infer.state import _layer_hooks

#: Where something stands below a root: names of attributes, keys and indices, e.g. ("self", "layers", "0", "weight").
Path = tuple[str, ...]

_CACHE = type(functools.lru_cache(lambda: None))
_LEAVES = (
    type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, str, bytes, int, float,
    complex, bool, type(None), enum.Enum, range, slice, logging.Logger, _CACHE, staticmethod,
)  # fmt: skip


_BUILTIN = frozenset(
    {dict, list, tuple, set, frozenset, deque, type, types.MethodType, types.FunctionType, types.BuiltinFunctionType}
)
_CONTAINERS = frozenset({dict, OrderedDict, list, tuple, set, frozenset})
_HOLD_NO_FUNCTION = PLAIN | {type, types.ModuleType, types.BuiltinFunctionType}
_NAMED = (logging.Logger, contextvars.ContextVar, types.ModuleType)
_OBJECTS = 1 << 17
_OURS = __name__.partition(".")[0]  # a wrapped method leads to its programs, of which the program knows nothing


@dataclass(frozen=True)
class Place:
    """`box[key]` (a dict or list), below `path`, and what it holds."""

    kind: ClassVar[str]

    box: Any
    key: Any
    path: Path
    held: Any

    @property
    def name(self) -> str:
        return ".".join(self.path)


class Slot(Place):
    """A place that holds a tensor; of those in a tuple, `box` is None."""

    kind = "tensor"

    @property
    def tensor(self) -> Any:
        return self.held


class TupleSlot(Place):
    """A tuple that holds tensors: it can only be replaced as a whole."""

    kind = "tuple"


@dataclass
class Census:
    """What a walk found: slots in order, and every object with state by its path (the first one that led there)."""

    slots: list[Slot] = field(default_factory=list)
    tuples: list[TupleSlot] = field(default_factory=list)
    objects: dict[Path, Any] = field(default_factory=dict)
    paths: dict[int, Path] = field(default_factory=dict)
    layers: list[tuple[Path, Any]] = field(default_factory=list)
    grouped: set[int] = field(default_factory=set)  # ids of the dicts in which layers keep parameters and sublayers
    recomputed: dict[Path, frozenset[str]] = field(default_factory=dict)  # attributes that hooks compute at each call
    left_out: dict[Path, frozenset[str]] = field(default_factory=dict)  # attributes that copies have not (`_left_out`)
    carries: tuple[Any, ...] = ()  # whose places are left out (see `_carry`)
    without: frozenset[Path] = frozenset()  # these places

    def at(self, path: Path) -> Any:
        """The object or tensor at a path; None where there is none."""
        found = self.objects.get(path)
        return found if found is not None else next((s.tensor for s in self.slots if s.path == path), None)

    def computed(self, groups: Sequence[str]) -> Iterator[tuple[dict[str, Any], str]]:
        """Where layers, which keep weights in `groups`, hold what their hooks compute: a dict and a key each."""
        for path, names in self.recomputed.items():
            state = vars(self.objects[path])
            for box in (state, *(state[group] for group in groups if state.get(group) is not None)):
                yield from ((box, name) for name in names if name in box)

    def weights(self) -> dict[str, list[Slot]]:
        """Slots of each distinct tensor, under the name of the first."""
        first: dict[int, str] = {}
        groups: dict[str, list[Slot]] = {}
        for slot in self.slots:
            groups.setdefault(first.setdefault(id(slot.tensor), slot.name), []).append(slot)
        return groups


def has_state(value: Any) -> bool:
    """Is it an instance whose attributes are plain data of the program (and not a class, function or number)?"""
    if isinstance(value, _LEAVES):
        return False
    state = getattr(value, "__dict__", None)  # of what stands for another object, that one's: of `list[int]`, a class's
    if not isinstance(state, dict) or "__hybrid_infer__" in state:
        return False
    return state is value.__dict__  # and none that a class makes anew each time, of what it holds elsewhere


def take(roots: Mapping[str, Any], frontend: Any, carries: Sequence[Any] = ()) -> Census:
    """Walk the roots: a layer, an object, a container or a tensor each, under its name. What is carried is left out."""
    census = Census(carries=tuple(carries))
    census.without = frozenset(carry.place for carry in carries)
    box = dict(roots)
    census.objects[()] = box
    for name in roots:
        _visit(box, name, (name,), census, frontend)
    return census


def named(census: Census) -> tuple[list[type], list[type], list[Any]]:
    """What the state holds of which names count as code mentions them, each once.

    Classes of the program, by themselves or by their instances; those by themselves, which code may call; then its
    modules, loggers and context variables.
    """
    found: dict[type, None] = {}
    themselves: list[type] = []
    others: list[Any] = []
    for value in _values(census):
        if isinstance(value, type):
            found[value] = None
            if not _origin.of_object(value):
                themselves.append(value)
        elif isinstance(value, _NAMED):
            if not isinstance(value, types.ModuleType) or not _origin.of_object(value):
                others.append(value)
            continue
        if type(value) not in _BUILTIN:
            found[type(value)] = None
    return [kind for kind in found if not _origin.of_object(kind)], themselves, others


def caches(census: Census) -> list[Any]:
    """What the state holds that ``functools.lru_cache`` has made."""
    return [value for value in _values(census) if type(value) is _CACHE]


def _values(census: Census) -> Iterator[Any]:
    """All that the state holds but plain data and empty containers, each once."""
    seen: set[int] = set()
    passed_by = {id(census.objects[path]): names for path, names in census.left_out.items()}
    queue: list[Any] = list(census.objects.values())
    ours: dict[type, bool] = {}
    slots: dict[type, list[tuple[str, Any]]] = {}
    while queue and len(seen) < _OBJECTS:
        value = queue.pop()
        kind = type(value)
        if kind in PLAIN or id(value) in seen:
            continue
        if kind in _CONTAINERS and not value and not getattr(value, "__dict__", None):
            continue  # as most of what a layer holds is: dicts for hooks that it has not
        if kind not in ours:
            ours[kind] = str(kind.__module__).partition(".")[0] == _OURS
            slots[kind] = list(_state.members(kind))
        if ours[kind]:
            continue
        seen.add(id(value))
        yield value
        if kind is dict:
            queue.extend(value.values())
            queue.extend(key for key in list(value) if type(key) not in PLAIN)
            continue
        if isinstance(value, _NAMED):
            continue
        if isinstance(value, (dict, list, tuple, set, frozenset, deque)):
            queue.extend(_state.elements(value))
            if isinstance(value, dict):
                queue.extend(key for key in list(dict.keys(value)) if type(key) not in PLAIN)
        elif _undo.is_array(value) and value.dtype.hasobject:
            queue.extend(value.flat)
        elif isinstance(value, types.MethodType):
            queue += [value.__self__, value.__func__]
        elif isinstance(value, staticmethod):
            queue.append(value.__func__)
        elif isinstance(value, functools.partial):
            queue += [value.func, value.args, value.keywords]
        elif isinstance(value, weakref.ref):
            queue.append(value())
        if kind in _BUILTIN or isinstance(value, (types.FunctionType, type)):
            continue
        names = passed_by.get(id(value), frozenset())  # by name: what is left out may be held elsewhere as well
        queue.extend(held for name, held in getattr(value, "__dict__", {}).items() if name not in names)
        queue.extend(_state.slot(member, value) for _, member in slots[kind])


def functions(census: Census) -> dict[str, dict[str, tuple[types.FunctionType, ...]]]:
    """Functions of the program that objects keep as attributes, or in containers there: by class and attribute."""
    found: dict[str, dict[str, dict[types.FunctionType, None]]] = {}
    seen: dict[int, tuple[types.FunctionType, ...]] = {}
    for value in census.objects.values():
        state = getattr(value, "__dict__", None)
        attributes = list(state.items()) if isinstance(state, dict) else []
        for name, held in (*attributes, *_state.slots(value, type(value))):
            if type(held) in _HOLD_NO_FUNCTION or (type(held) in _CONTAINERS and not held):
                continue
            for function in _functions(held, seen):
                found.setdefault(_state.name_of(type(value)), {}).setdefault(name, {})[function] = None
    return {kind: {name: tuple(each) for name, each in names.items()} for kind, names in found.items()}


def _functions(value: Any, seen: dict[int, tuple[types.FunctionType, ...]]) -> tuple[types.FunctionType, ...]:
    """Those that a value is, or holds in containers; `seen`: what was found in a container before, by its id."""
    if isinstance(value, types.FunctionType):
        return () if hasattr(value, "__hybrid_infer__") or _origin.of_object(value) else (value,)
    if isinstance(value, (types.MethodType, staticmethod)):
        return _functions(value.__func__, seen)
    if isinstance(value, functools.partial):
        return _functions(value.func, seen)
    if not isinstance(value, (dict, list, tuple, deque)):
        return ()
    if id(value) not in seen:
        seen[id(value)] = ()  # for one that holds itself
        parts = [each for each in _state.elements(value) if type(each) not in PLAIN]
        seen[id(value)] = tuple(dict.fromkeys(function for each in parts for function in _functions(each, seen)))
    return seen[id(value)]


def opens(layer: Any, frontend: Any) -> bool:
    """Does a layer keep its weights and sublayers in dicts of its own? TorchScript's keep theirs outside of Python."""
    # Not by their truth: theirs are false while they are empty.
    return all(isinstance(vars(layer).get(group), (dict, types.NoneType)) for group in frontend.groups)


def _visit(box: Any, key: Any, path: Path, census: Census, frontend: Any) -> None:
    value = box[key]
    if path in census.without:
        return
    if isinstance(value, frontend.tensor_type):
        census.slots.append(Slot(box, key, path, value))
        return
    if isinstance(value, _LEAVES) or id(value) in census.paths:
        return
    if isinstance(value, tuple):
        found = list(_tuple_tensors(value, path, frontend))
        if found:
            census.tuples.append(TupleSlot(box, key, path, value))
            for place, tensor in found:
                census.slots.append(Slot(None, None, place, tensor))
        _visit_items(value, path, census, frontend)
        return
    is_layer = isinstance(value, frontend.layer_type)
    if is_layer and not opens(value, frontend):
        return
    if not (is_layer or isinstance(value, (dict, list)) or has_state(value)):
        return
    census.paths[id(value)] = path
    census.objects[path] = value
    if is_layer:
        census.layers.append((path, value))
        if path != _layer_hooks.OWN and (names := _layer_hooks.recomputed(value, frontend.hooks)):
            census.recomputed[path] = names
    passed_by = census.recomputed.get(path, frozenset())
    if not isinstance(value, (dict, list)) and (left_out := _left_out.names(value)):
        census.left_out[path] = left_out
        passed_by |= left_out
    for inner, name in items(value, is_layer, census, frontend):
        if name not in passed_by:
            _visit(inner, name, (*path, str(name)), census, frontend)


def _visit_items(value: tuple[Any, ...], path: Path, census: Census, frontend: Any) -> None:
    """What a tuple, and those in it, hold beside tensors."""
    for i, item in enumerate(_state.content(value)):
        if isinstance(item, tuple):
            _visit_items(item, (*path, str(i)), census, frontend)
        elif not isinstance(item, frontend.tensor_type):
            _visit(value, i, (*path, str(i)), census, frontend)


def items(value: Any, is_layer: bool, census: Census, frontend: Any) -> Iterator[tuple[Any, Any]]:
    """What an object holds: the dict or list it stands in, and its key there."""
    if is_layer:
        state = vars(value)
        for name in list(state):
            if name not in frontend.groups and name not in frontend.internal:
                yield state, name
        for group in frontend.groups:
            inner = state.get(group)
            if inner is not None:
                census.grouped.add(id(inner))
                for name in list(inner):
                    if inner[name] is not None:
                        yield inner, name
        return
    if isinstance(value, dict):
        for name in list(_state.content(value)):
            yield value, name
    elif isinstance(value, list):
        for i in range(list.__len__(value)):
            yield value, i
    if has_state(value):
        state, at_hand = vars(value), _at_hand.names(type(value))
        for name in list(state):
            if name not in at_hand:
                yield state, name


def _tuple_tensors(value: tuple[Any, ...], path: Path, frontend: Any) -> Iterator[tuple[Path, Any]]:
    for i, item in enumerate(_state.content(value)):
        if isinstance(item, frontend.tensor_type):
            yield (*path, str(i)), item
        elif isinstance(item, tuple):
            yield from _tuple_tensors(item, (*path, str(i)), frontend)


def rebuilt(value: Any, replacement: Mapping[int, Any]) -> Any:
    """A tuple with tensors replaced by identity, nested tuples included."""
    if isinstance(value, tuple):
        items = [rebuilt(item, replacement) for item in _state.content(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return replacement.get(id(value), value)
