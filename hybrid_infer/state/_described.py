"""What an object of the program holds beside tensors, described so that a change shows."""

from __future__ import annotations

import enum
import functools
import logging
import types
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any

from hybrid_infer._keys import TOO_DEEP
from hybrid_infer.fingerprint import _fingerprint
from hybrid_infer.objects import _at_hand, _undo
from hybrid_infer.objects import _state as _held
from hybrid_infer.state import _census
from hybrid_infer.state._census import Census, Path

_ITSELF, _ORDER = "its state", "its order"
_EMPTY = "an empty set"
#: What the program shares with its copies: it refuses to be copied.
SHARED = (types.ModuleType, type(functools.lru_cache(lambda: None)))
_SIMPLE = (int, float, str, bool, bytes, complex, type(None))
NO_STATE = (
    type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial,
    enum.Enum, range, slice, logging.Logger, staticmethod, *SHARED,
)  # fmt: skip


def described(census: Census, frontend: Any) -> dict[Path, Any]:
    """A description of the non-tensor state of a twin, for a comparison."""
    tensor, known = frontend.tensor_type, census.paths
    slots = {(id(slot.box), slot.key) for slot in census.slots}
    slots |= {(id(place.box), place.key) for place in census.tuples}
    found: dict[Path, Any] = {}
    for path, value in census.objects.items():
        places = boxes(value, frontend)
        state: dict[Any, Any] = {}
        computed = census.recomputed.get(path, frozenset()) | _at_hand.names(type(value))
        for n, box in enumerate(places):
            inside = _held.content(box)
            if box is not getattr(value, "__dict__", None) and isinstance(box, dict):
                state[n, _ORDER] = [k for k in inside if k not in computed and (*path, k) not in census.without]
            for key, held in enumerate(inside) if isinstance(box, list) else list(inside.items()):
                if key in frontend.ignored_writes and isinstance(value, frontend.layer_type):
                    continue
                if key in computed or (*path, key) in census.without:
                    continue
                if isinstance(held, tensor) or (id(box), key) in slots:
                    state[n, key] = _items(held, frontend, known) if isinstance(held, tuple) else "tensor"
                else:
                    state[n, key] = _token(frontend.spelling(value, key, held), frontend, known)
        for name, held in _held.slots(value, type(value)):
            state["a slot", name] = _token(held, frontend, known)
        if _census.has_state(value) and not isinstance(value, (dict, list, frontend.layer_type)):
            state[0, _ITSELF] = _native(value, frontend, known)
        found[path] = state
    return found


def differing(before: Any, after: Any) -> list[tuple[int, Any]]:
    """Which places differ: the number of the box, and the key there."""
    after = after or {}
    return [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]


def box_of(value: Any, place: tuple[Any, Any], frontend: Any) -> Any:
    """The dict or list of an object that a place of its description is in; None where it is in none."""
    number, key = place
    return boxes(value, frontend)[number] if type(number) is int and key not in (_ITSELF, _ORDER) else None


def memories(census: Census, frontend: Any) -> list[_undo.Memory]:
    """Of all that a twin's objects hold, so that what a run assigns can be taken back."""
    found: list[_undo.Memory] = []
    for value in census.objects.values():
        if members := _undo.members(type(value)):
            found.append(_undo.slots(value, members))
        for box in boxes(value, frontend):
            inside = (each for each in _held.elements(box) if isinstance(each, (deque, set, bytearray)))
            containers = [box, *inside]
            found += [known[0] for each in containers if (known := _undo.container(each)) is not None]
    return found


def named_memories(census: Census, frontend: Any) -> Iterator[tuple[str, _undo.Memory]]:
    """The same with names, of what counts as a change."""
    for path, value in census.objects.items():
        name, layer = ".".join(path), isinstance(value, frontend.layer_type)
        but = {"", *census.recomputed.get(path, ()), *_at_hand.names(type(value))}
        but |= frontend.ignored_writes if layer else frozenset()
        if members := _undo.members(type(value)):
            yield name, _undo.slots(value, members)
        for box in boxes(value, frontend):
            if isinstance(box, dict):  # in whatever order
                yield name, _undo.Entries(box, but=but, dot=box is not value)
            inside = [each for each in _held.elements(box) if isinstance(each, (deque, set, bytearray))]
            for each in (*inside, *(() if isinstance(box, dict) else (box,))):
                if (known := _undo.container(each)) is not None:
                    yield name, known[0]


def boxes(value: Any, frontend: Any) -> list[Any]:
    """The dicts and lists in which an object keeps what it holds."""
    if isinstance(value, frontend.layer_type):
        return [vars(value), *(vars(value)[g] for g in frontend.groups if vars(value).get(g) is not None)]
    found = [value] if isinstance(value, (dict, list)) else []
    return found + ([vars(value)] if _census.has_state(value) else [])


def _token(value: Any, frontend: Any, known: Collection[int]) -> Any:
    if type(value) in _SIMPLE:
        return type(value), repr(value)
    if isinstance(value, tuple):
        return id(value), _items(value, frontend, known)
    watched = isinstance(value, (dict, list, frontend.layer_type, *frontend.constant_types))
    if watched or _is_object(value) or isinstance(value, NO_STATE):
        return id(value)  # which either does not change or is compared place by place
    if type(value) is set and not value:  # as most layers of torch have one, which needs no walk through code
        return id(value), _EMPTY, []
    held = _held_in(value) if isinstance(value, (deque, set, frozenset)) else ()
    return id(value), _digest(value, frontend, known), held


def _items(value: tuple[Any, ...], frontend: Any, known: Collection[int]) -> list[Any]:
    """What a tuple holds beside tensors: it stays, and what it holds may change all the same."""
    found: list[Any] = []
    for item in _held.content(value):
        if isinstance(item, tuple):
            found.append(_items(item, frontend, known))
        elif not isinstance(item, (frontend.tensor_type, *frontend.traced_types)):
            found.append(_token(item, frontend, known))
    if hasattr(value, "__dict__"):
        found.append(_digest(vars(value), frontend, known))
    return found


def _digest(value: Any, frontend: Any, known: Collection[int]) -> str:
    """State that no attribute shows: of a set, an array, an iterator, a generator of random numbers.

    `known`: ids of objects whose attributes are compared one by one. What is nested deeper than Python's stack is, such
    as the nodes of a large `torch.fx.Graph`, has none: how far a walk comes is another depth at each.
    """
    found = _fingerprint.fingerprint(
        [value],
        [],
        is_tensor=lambda item: isinstance(item, frontend.tensor_type),
        is_layer=lambda item: isinstance(item, frontend.layer_type),
        skip=lambda item: id(item) in known and _is_object(item),
    )
    return "" if any(TOO_DEEP in why for why in found.opaque) else found.digest


def _held_in(value: Any, above: tuple[int, ...] = ()) -> list[int]:
    """The identities of what a container holds beside plain values, as far down as containers go."""
    if not isinstance(value, (deque, set, frozenset, tuple, list, dict)):
        return [] if isinstance(value, _SIMPLE) else [id(value)]
    if id(value) in above:
        return []
    return [number for item in _held.elements(value) for number in _held_in(item, (*above, id(value)))]


def _is_object(value: Any) -> bool:
    return _census.has_state(value) or hasattr(value, "__hybrid_infer__")


def _native(value: Any, frontend: Any, known: Collection[int]) -> str:
    """The same of an instance whose class adds attributes to a class in C: what its copy would be given."""
    native = _held.native_base(type(value))
    if native is None or issubclass(native, (dict, list)):
        return ""
    told = [*(_held.told(value, type(value), native) or ())][2:]
    return _digest([part for part in told if part is not vars(value)], frontend, known)
