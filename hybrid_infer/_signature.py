"""From the arguments of a call to (tensors, constants, structure), and from flat results back to structure.

A *key* is what the memo compares: cheap, hashable, exact. A *layout* is the same as plain JSON data, for versions on
disk: a tree whose leaves are ``["t"]`` (the next tensor), ``["t", i]`` (the i-th one again), ``["i"]`` (the next
integer), ``["c", type, value]`` (a constant) and whose inner nodes name their class by import path and hold what is in
them at their end: of a ``defaultdict`` behind the name of its factory, of a ``deque`` behind its greatest length.
``["a", n]`` is the n-th of these again, where one object stands in two places. Among results ``["g", i, n]`` is the
i-th of the n objects that the call was given (see `_given`).
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hybrid_infer._structure import builder, class_path, constants, lasts, name_of
from hybrid_infer._unsupported import Beside, OfLayer, OfOrder, OfValues, Unsupported
from hybrid_infer.objects import _beside, _constants, _state
from hybrid_infer.objects._state import PLAIN
from hybrid_infer.state import _mappings
from hybrid_infer.state._given import is_object


def place(name: str) -> str:
    """A parameter in words, or what is carried from call to call (see `_carry`), such as ``self.state``."""
    return name if "." in name else f"argument `{name}`"


_EXACT = frozenset({int, bool, str, bytes})
_STRUCTURES = frozenset({tuple, list, dict})
_NAMES = frozenset({str})  # what most dicts have for keys


class Signatures:
    """Keys and layouts for the values of one framework."""

    def __init__(self, frontend: Any, *, traced: bool = False, objects: bool = False) -> None:
        self.tensor_classes = frontend.traced_types if traced else (frontend.tensor_type,)
        self.tensor_types = frontend.tensor_types
        self.tensor_key = frontend.key
        self.constant_types = frontend.constant_types
        self._exact = _EXACT.union(frontend.constant_types)
        self.frontend = frontend
        self._leaves = frozenset((*frontend.tensor_types, *frontend.constant_types))
        self.objects = objects  # may there be any among the arguments?
        self._lasting = PLAIN | frontend.tensor_types

    def key(
        self, values: Sequence[Any], tensors: list[Any], defaults: Sequence[Any], boxes: dict[int, Any]
    ) -> tuple[Any, ...]:
        """An exact, hashable key of `values`; their tensors are appended to `tensors` in order.

        And its lists, dicts, proxies of these and objects, each once and by their ids, to `boxes` (see `_given`).
        """
        parts: list[Any] = []
        add = parts.append
        types, tensor_key, exact = self.tensor_types, self.tensor_key, self._exact
        for value in values:
            kind = type(value)
            if kind in types:
                tensors.append(value)
                add(tensor_key(value))
            elif value is None:
                add(None)
            elif kind in exact:
                add((kind, value))
            else:
                add(self._key(value, tensors, defaults, boxes))
        return tuple(parts)

    def _key(self, value: Any, tensors: list[Any], defaults: Sequence[Any], boxes: dict[int, Any]) -> Any:
        kind = type(value)
        if kind is float:
            return kind, value.hex()
        if kind is tuple:
            return kind, self.key(value, tensors, defaults, boxes)
        if kind is list and id(value) not in boxes:
            boxes[id(value)] = value
            return kind, self.key(value, tensors, defaults, boxes)
        if kind is dict and id(value) not in boxes and _NAMES.issuperset(map(type, value)):
            boxes[id(value)] = value
            return kind, tuple(value), self.key(tuple(value.values()), tensors, defaults, boxes)
        if kind is complex:
            return kind, value.real.hex(), value.imag.hex()
        if isinstance(value, self.constant_types):
            return kind, value
        if kind not in _STRUCTURES and isinstance(value, enum.Enum):
            return self._other(value, kind, defaults)
        if self.objects and id(value) in boxes:
            return kind, "again", [*boxes].index(id(value))
        if isinstance(value, dict):
            _sole(value, kind, "an argument")
            boxes[id(value)] = value
            names = []  # each with its type: among such names 1 and True are equal
            for name in value:
                if type(name) not in (str, int, bool) and name is not None:
                    raise Unsupported("a key of a dict", name)
                names.append((type(name), name))
            if kind is defaultdict:
                names.append(_told(_beside.factory, value, "an argument"))
            return kind, tuple(names), self.key(tuple(value.values()), tensors, defaults, boxes)
        if isinstance(value, tuple):
            _sole(value, kind, "an argument")
            return kind, self.key(value, tensors, defaults, boxes)
        if isinstance(value, list):
            _sole(value, kind, "an argument")
            boxes[id(value)] = value
            return kind, self.key(value, tensors, defaults, boxes)
        if kind is deque:
            boxes[id(value)] = value
            return kind, value.maxlen, self.key(value, tensors, defaults, boxes)
        if kind is MappingProxyType and not _among(value, defaults):
            boxes[id(value)] = value
            return kind, self._key(_told(_beside.behind, value, "an argument"), tensors, defaults, boxes)
        if self.objects and is_object(kind) and not _among(value, defaults):
            boxes[id(value)] = value
            state = _mappings.attributes(value, kind, self._leaves)
            return kind, tuple(state), self.key(tuple(state.values()), tensors, defaults, boxes)
        if not isinstance(value, type) and dataclasses.is_dataclass(value):
            _sole(value, kind, "an argument")
            boxes[id(value)] = value
            fields = [getattr(value, f.name) for f in dataclasses.fields(value)]
            return kind, self.key(fields, tensors, defaults, boxes)
        return self._other(value, kind, defaults)

    def _other(self, value: Any, kind: type, defaults: Sequence[Any]) -> Any:
        """The key of what is no structure."""
        for i, default in enumerate(defaults):
            if value is default and value is not inspect.Parameter.empty:
                return "default", i
        if isinstance(value, enum.Enum) or (self.objects and isinstance(value, type)):
            return kind, _Same(value)
        constant = _constants.encoded(value)
        if constant is not None:
            return constant
        raise Unsupported("an argument", value)

    def lasting(self, values: Sequence[Any]) -> bool:
        """Are there tensors and plain values alone, of which no program can make a call of another structure?"""
        return all(map(self._lasting.__contains__, map(type, values)))

    def layout(self, values: Sequence[Any], names: Sequence[str], defaults: Sequence[Any] = ()) -> Layout:
        """The same as JSON data, with the place of each leaf in words."""
        found = Layout()
        found.told = self.objects
        nodes = []
        found.inner = 1  # the tuple of them all
        for name, value in zip(names, values, strict=True):
            nodes.append(self._node(value, place(name), found, defaults))
        found.tree = ["u", "builtins:tuple", nodes]
        return found

    def results(
        self, value: Any, symbolic: Callable[[Any], bool], kept: Callable[[Any], bool] = lambda value: False,
        given: Sequence[Any] = (),
    ) -> Layout:  # fmt: skip
        """Layout of what a method returned; `symbolic` recognises a tracer's integers.

        An object that the program keeps (`kept`) is no structure: another one in its place would not be that object.
        `given`: the objects of the call, each of which stays what it is.
        """
        found = Layout()
        found.given = {id(each): i for i, each in enumerate(given)}
        found.symbolic, found.kept, found.told = symbolic, kept, True
        found.tree = self._node(value, "the result", found, ())
        return found

    def _node(self, value: Any, place: str, found: Layout, defaults: Sequence[Any]) -> list[Any]:
        kind = type(value)
        symbolic = found.symbolic is not None and found.symbolic(value)
        if isinstance(value, self.tensor_classes) and not symbolic:
            again = None
            if found.symbolic is None:  # among arguments: code may ask whether two of them are the same object
                again = next((i for i, tensor in enumerate(found.tensors) if tensor is value), None)
            found.leaves.append(("t", len(found.tensors) if again is None else again))
            found.tensors.append(value)
            found.places.append(place)
            return ["t"] if again is None else ["t", again]
        if symbolic if found.symbolic else kind is int:
            found.leaves.append(("i", len(found.ints)))
            found.ints.append(value)
            found.int_places.append(place)
            return ["i"]
        if kind in PLAIN:
            return ["c", *_constants.listed(_constants.encoded(value))]
        if isinstance(value, self.constant_types):
            return ["c", class_path(kind), str(value)]
        if found.symbolic is not None and isinstance(value, self.frontend.numbers_of_values):
            raise OfValues(place, value)
        if id(value) in found.given:
            return ["g", found.given[id(value)], len(found.given)]
        # A member of an enumeration is itself, whatever it holds.
        opened = None if isinstance(value, enum.Enum) else self._opened(value, place, found, defaults)
        if opened is None:
            return self._named(value, place, found, defaults)
        head, items, dot = opened
        number = found.enter(value, place)
        if number is not None:
            return ["a", number]
        if kind not in _beside.STANDARD:
            found.note(kind)
        elif kind not in (dict, OrderedDict):
            found.standard = True
        children = self._children(items, place, found, defaults, dot)
        found.open.discard(id(value))
        return [*head, children]

    def _opened(
        self, value: Any, place: str, found: Layout, defaults: Sequence[Any]
    ) -> tuple[list[Any], Any, str] | None:
        """How a structure's node begins, what is in it, and what stands before a name there; None of what is none."""
        kind, path = type(value), name_of(type(value))
        if found.symbolic is None and self.objects and is_object(kind) and not _among(value, defaults):
            found.holds_objects = True
            state = _mappings.attributes(value, kind, self._leaves)
            return ["o", path, [*state]], state.items(), "."
        if isinstance(value, dict):
            for name in value:
                if type(name) not in (str, int, bool) and name is not None:
                    raise Unsupported(f"a key of {place}", name)
            _sole(value, kind, place)
            names = [[type(k).__name__, k] for k in value]
            if kind in (dict, OrderedDict):
                return ["d", path, names], value.items(), ""
            if kind is defaultdict and not self._kept_by_program(value, found):
                return ["f", path, names, _told(_beside.factory, value, place)], value.items(), ""
            if not dataclasses.is_dataclass(kind):
                raise Unsupported(place, value)
        if kind is deque and not self._kept_by_program(value, found):
            return ["q", path, value.maxlen], enumerate(value), ""
        if kind is MappingProxyType and not _among(value, defaults):
            held = _told(_beside.behind, value, place)
            return None if self._kept_by_program(held, found) else (["p", path], [(None, held)], "")
        if not isinstance(value, type) and dataclasses.is_dataclass(value):
            own = dataclasses.fields(value)
            if found.symbolic is not None and _state.plain(kind) and _beside.of_dataclass(value, kind, own) is not None:
                return ["o", path, [*vars(value)]], vars(value).items(), "."
            _sole(value, kind, place)
            fields = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
            return ["D", path, [name for name, _ in fields]], fields, "."
        if isinstance(value, (list, tuple)):
            _sole(value, kind, place)
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return ["n", path], zip(kind._fields, value, strict=True), "."
        if isinstance(value, (list, tuple)):
            return ["u", path], enumerate(value), ""
        plain = found.symbolic is not None and (_state.plain(kind) or _mappings.is_mapping(kind))
        if plain and not self._kept(value, found):
            return ["o", path, [*vars(value)]], vars(value).items(), "."
        return None

    def _named(self, value: Any, place: str, found: Layout, defaults: Sequence[Any]) -> list[Any]:
        """A constant that is found again by a name."""
        for i, default in enumerate(defaults):
            if value is default and value is not inspect.Parameter.empty:
                return ["c", "default", i]
        kind = type(value)
        if isinstance(value, enum.Enum):
            member = _member(value, kind)
            if member is not None:
                found.note(kind)
                return member
        if isinstance(value, type) and (found.symbolic is not None or self.objects) and lasts(path := name_of(value)):
            if found.symbolic is None:
                found.note(value)
                found.passed.append(value)
            return ["c", "type", path]
        if self.objects and isinstance(value, self.frontend.layer_type):
            raise OfLayer(place, value)
        # A set among results may be one that the program keeps, and changes.
        constant = _constants.encoded(value) if found.symbolic is None or kind is not set else None
        if constant is not None:
            return ["c", *_constants.listed(constant)]
        raise (OfOrder if found.symbolic is None and _constants.unordered(value) else Unsupported)(place, value)

    def _kept_by_program(self, value: Any, found: Layout) -> bool:
        """Is a container of the results one that the program keeps, and goes on to change?"""
        return found.symbolic is not None and found.kept(value)

    def _kept(self, value: Any, found: Layout) -> bool:
        return isinstance(value, self.frontend.layer_type) or found.kept(value)

    def _children(
        self, items: Any, place: str, found: Layout, defaults: Sequence[Any], dot: str = ""
    ) -> list[list[Any]]:
        def at(key: Any) -> str:
            return place if key is None and not dot else f"{place}.{key}" if dot else f"{place}[{key!r}]"

        return [self._node(v, at(k), found, defaults) for k, v in items]


class Layout:
    """A tree with its leaves: tensors and integers in order, each with its place in words."""

    def __init__(self) -> None:
        self.tree: list[Any] = []
        self.tensors: list[Any] = []
        self.places: list[str] = []
        self.ints: list[Any] = []
        self.int_places: list[str] = []
        self.leaves: list[tuple[str, int]] = []  # ("t", position in tensors) or ("i", position in ints)
        self.kinds: list[type] = []  # the classes of containers, beside the builtin ones
        self.passed: list[type] = []  # those of them that are passed themselves, among arguments
        self.local: str = ""  # a class that no import path leads to: the tree is good for this process only
        self.symbolic: Callable[[Any], bool] | None = None  # set for results: there a plain int is a constant
        self.kept: Callable[[Any], bool] = lambda value: False
        self.holds_objects = False
        self.told = False  # are objects that stand in two places told from two equal ones?
        self.repeats = False  # is there one?
        self.standard = False  # is there a `defaultdict`, a `deque` or a `MappingProxyType`?
        self.given: dict[int, int] = {}  # among results, the objects of the call: their positions by id
        self.inner = 0  # inner nodes so far
        self.entered: dict[int, tuple[int, Any]] = {}  # number and object by id, of those that can be changed
        self.open: set[int] = set()  # what is being looked into

    @property
    def specifiable(self) -> bool:
        """Can specs, and so a saved model, stand for it? They tell of no object, nor which lists and dicts are one."""
        return not (self.holds_objects or self.repeats or self.standard)

    def rebuilder(self, frontend: Any, defaults: Sequence[Any]) -> Callable[..., Any]:
        """A function from other tensors, and integers by position, to the values of a call, in other containers.

        Integers that it is not given are those of this call.
        """
        build = builder(self.tree, constants(frontend, defaults))

        def rebuilt(tensors: Sequence[Any], ints: Mapping[int, Any] = MappingProxyType({})) -> Any:
            return build([tensors[i] if kind == "t" else ints.get(i, self.ints[i]) for kind, i in self.leaves])

        return rebuilt

    def enter(self, value: Any, place: str) -> int | None:
        """Note that a structure is looked into; its number where that has been done. Raises Unsupported in a circle."""
        if not isinstance(value, tuple):
            if id(value) in self.open:
                raise Unsupported(f"{place}, which holds itself,", value)
            if self.told and id(value) in self.entered:
                self.repeats = True
                return self.entered[id(value)][0]
            self.open.add(id(value))
            self.entered[id(value)] = self.inner, value
        self.inner += 1
        return None

    def note(self, kind: type) -> None:
        if kind not in (list, tuple) and kind not in self.kinds:
            self.kinds.append(kind)
        if not self.local and not lasts(name_of(kind)):
            self.local = class_path(kind)


class _Same:
    """In a key: this very object, whatever its class takes for equal."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is _Same and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


def _sole(value: Any, kind: type, place: str) -> None:
    """Raises Beside where a container holds more than its items or fields."""
    if kind in (list, tuple, dict):
        return
    if dataclasses.is_dataclass(kind):
        name = _beside.of_dataclass(value, kind, dataclasses.fields(value))
    else:
        name = _beside.attribute(value, kind)
    if name is not None:
        raise Beside(place, value, name)


def _told(ask: Callable[[Any], Any], value: Any, place: str) -> Any:
    """What `ask` tells of a container. Raises Unsupported where it tells nothing."""
    try:
        return ask(value)
    except LookupError:
        raise Unsupported(place, value) from None


def _member(value: enum.Enum, kind: Any) -> list[Any] | None:
    """The node of a member of an enumeration, or of several flags together; None of what no name leads to."""
    if value.name in kind.__members__:
        return ["c", "enum", [name_of(kind), value.name]]
    if isinstance(value, enum.Flag) and type(value.value) is int:
        return ["c", "flag", [name_of(kind), value.value]]
    return None


def _among(value: Any, defaults: Sequence[Any]) -> bool:
    for default in defaults:  # noqa: SIM110 - for each object of a call; any() takes three times as long
        if value is default:
            return True
    return False
