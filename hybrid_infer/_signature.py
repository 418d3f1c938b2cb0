"""From the arguments of a call to (tensors, constants, structure), and from flat results back to structure.

A *key* is what the memo compares: cheap, hashable, exact. A *layout* is the same as plain JSON data, for versions on
disk: a tree whose leaves are ``["t"]`` (the next tensor), ``["t", i]`` (the i-th one again), ``["i"]`` (the next
integer), ``["c", type, value]`` (a constant) and whose inner nodes name their class by import path.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import import_module
from typing import Any

_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_POSITIONAL_OR_KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD
_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD


class Unsupported(Exception):
    """A value that cannot be part of a signature: ``place`` in the arguments or results, and what it is."""

    def __init__(self, place: str, value: object) -> None:
        super().__init__(place, value)
        self.place, self.kind = place, f"{type(value).__module__}.{type(value).__qualname__}"

    def __str__(self) -> str:
        return f"{self.place} is of class {self.kind}, which a static graph can neither take nor return"


class Parameters:
    """The parameters of a function, so that ``f(x, 2)``, ``f(x, y=2)`` and ``f(x)`` with that default are one call."""

    missing = inspect.Parameter.empty  # the default of a parameter that has none

    def __init__(self, function: Callable[..., Any], *, owner: bool) -> None:
        parameters = list(inspect.signature(function).parameters.values())
        if owner:
            first = (_POSITIONAL_ONLY, _POSITIONAL_OR_KEYWORD, _VAR_POSITIONAL)
            if not parameters or parameters[0].kind not in first:
                raise TypeError(f"{function.__qualname__} takes no argument for its instance")
            if parameters[0].kind is not _VAR_POSITIONAL:
                parameters = parameters[1:]
        self.parameters = parameters
        self.names = [p.name for p in parameters]
        self.defaults = tuple(p.default for p in parameters)
        self.simple = all(p.kind in (_POSITIONAL_ONLY, _POSITIONAL_OR_KEYWORD) for p in parameters)
        self._table = [(p.kind, p.name, p.default) for p in parameters]  # the attributes of `p` are properties
        self.count = len(parameters)
        self.required = sum(d is inspect.Parameter.empty for d in self.defaults)

    def same(self, other: Parameters) -> bool:
        """Are they of the same names, with the same objects as defaults?"""
        if [(p.name, p.kind) for p in self.parameters] != [(p.name, p.kind) for p in other.parameters]:
            return False
        pairs = zip(self.defaults, other.defaults, strict=True)
        # The signature of a function in C makes its defaults from text, anew each time.
        return all(a is b or (type(a) in _PLAIN and type(a) is type(b) and repr(a) == repr(b)) for a, b in pairs)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """One value per parameter (a tuple for ``*args``, a dict for ``**kwargs``); None if the call is wrong."""
        if self.simple and not kwargs:
            given = len(args)
            if given == self.count:
                return args
            if self.required <= given < self.count:
                return args + self.defaults[given:]
            return None
        return self._bind(args, kwargs)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        values: list[Any] = []
        left, position, given = dict(kwargs), 0, len(args)
        for kind, name, default in self._table:
            if kind is _VAR_POSITIONAL:
                values.append(args[position:])
                position = given
            elif kind is _VAR_KEYWORD:
                values.append(left)
                left = {}
            elif position < given and kind is not _KEYWORD_ONLY:
                if name in left and kind is not _POSITIONAL_ONLY:
                    return None
                values.append(args[position])
                position += 1
            elif name in left and kind is not _POSITIONAL_ONLY:
                values.append(left.pop(name))
            elif default is not inspect.Parameter.empty:
                values.append(default)
            else:
                return None
        return None if left or position < given else tuple(values)

    def unbind(self, values: Sequence[Any], given: int, names: Collection[str]) -> tuple[list[Any], dict[str, Any]]:
        """The way back: arguments for the function, passed as the caller passed them.

        ``given`` were positional and ``names`` by keyword; a parameter that was left out is left out again, since a
        function behind a wrapper may do something of its own with what it is given. Tensors and traced integers are
        passed all the same: a default that a trace takes from the function is a constant of the graph.
        """
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for p, value in zip(self.parameters, values, strict=True):
            if p.kind is p.VAR_POSITIONAL:
                args.extend(value)
            elif p.kind is p.VAR_KEYWORD:
                kwargs.update(value)
            elif p.kind is p.POSITIONAL_ONLY or (p.kind is not p.KEYWORD_ONLY and len(args) < given):
                args.append(value)
            elif p.name in names or not (value is p.default or type(value) in _PLAIN):
                kwargs[p.name] = value
        return args, kwargs


_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})


_EXACT = frozenset({int, bool, str, bytes})


class Signatures:
    """Keys and layouts for the values of one framework."""

    def __init__(self, frontend: Any, *, traced: bool = False) -> None:
        self.tensor_classes = frontend.traced_types if traced else (frontend.tensor_type,)
        self.tensor_types = frontend.tensor_types
        self.tensor_key = frontend.key
        self.constant_types = frontend.constant_types

    def key(self, values: Sequence[Any], tensors: list[Any], defaults: Sequence[Any] = ()) -> tuple[Any, ...]:
        """An exact, hashable key of `values`; their tensors are appended to `tensors` in order."""
        parts: list[Any] = []
        add = parts.append
        types, tensor_key = self.tensor_types, self.tensor_key
        for value in values:
            kind = type(value)
            if kind in types:
                tensors.append(value)
                add(tensor_key(value))
            elif value is None:
                add(None)
            elif kind in _EXACT:
                add((kind, value))
            else:
                add(self._key(value, tensors, defaults))
        return tuple(parts)

    def _key(self, value: Any, tensors: list[Any], defaults: Sequence[Any]) -> Any:
        kind = type(value)
        if kind is float:
            return kind, value.hex()
        if kind is complex:
            return kind, value.real.hex(), value.imag.hex()
        if isinstance(value, self.constant_types):
            return kind, value
        if isinstance(value, dict):
            names = []
            for name in value:
                if type(name) not in (str, int, bool) and name is not None:
                    raise Unsupported("a key of a dict", name)
                names.append((type(name), name))
            return kind, tuple(names), self.key(tuple(value.values()), tensors, defaults)
        if isinstance(value, (list, tuple)):
            return kind, self.key(value, tensors, defaults)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return kind, self.key([getattr(value, f.name) for f in dataclasses.fields(value)], tensors, defaults)
        for i, default in enumerate(defaults):
            if value is default and value is not inspect.Parameter.empty:
                return "default", i
        raise Unsupported("an argument", value)

    def layout(self, values: Sequence[Any], names: Sequence[str], defaults: Sequence[Any] = ()) -> Layout:
        """The same as JSON data, with the place of each leaf in words."""
        found = Layout()
        nodes = []
        for name, value in zip(names, values, strict=True):
            nodes.append(self._node(value, f"argument `{name}`", found, defaults))
        found.tree = ["u", "builtins:tuple", nodes]
        return found

    def results(self, value: Any, symbolic: Callable[[Any], bool]) -> Layout:
        """Layout of what a method returned; `symbolic` recognises a tracer's integers."""
        found = Layout()
        found.symbolic = symbolic
        found.tree = self._node(value, "the result", found, ())
        return found

    def _node(self, value: Any, place: str, found: Layout, defaults: Sequence[Any]) -> list[Any]:
        kind = type(value)
        if isinstance(value, self.tensor_classes):
            again = None
            if found.symbolic is None:  # among arguments: code may ask whether two of them are the same object
                again = next((i for i, tensor in enumerate(found.tensors) if tensor is value), None)
            found.leaves.append(("t", len(found.tensors) if again is None else again))
            found.tensors.append(value)
            found.places.append(place)
            return ["t"] if again is None else ["t", again]
        if found.symbolic(value) if found.symbolic else kind is int:
            found.leaves.append(("i", len(found.ints)))
            found.ints.append(value)
            found.int_places.append(place)
            return ["i"]
        if value is None or kind in (bool, str, int):
            return ["c", kind.__name__, value]
        if kind is bytes:
            return ["c", "bytes", value.hex()]
        if kind is float:
            return ["c", "float", value.hex()]
        if kind is complex:
            return ["c", "complex", [value.real.hex(), value.imag.hex()]]
        if isinstance(value, self.constant_types):
            return ["c", class_path(kind), str(value)]
        if isinstance(value, dict):
            for name in value:
                if type(name) not in (str, int, bool) and name is not None:
                    raise Unsupported(f"a key of {place}", name)
            if kind in (dict, OrderedDict):
                keys = [[type(k).__name__, k] for k in value]
                return ["d", class_path(kind), keys, self._children(value.items(), place, found, defaults)]
            if not dataclasses.is_dataclass(kind):
                raise Unsupported(place, value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
            found.note(kind)
            return ["D", class_path(kind), [n for n, _ in fields], self._children(fields, place, found, defaults, ".")]
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            found.note(kind)
            fields = list(zip(kind._fields, value, strict=True))
            return ["n", class_path(kind), self._children(fields, place, found, defaults, ".")]
        if isinstance(value, (list, tuple)):
            found.note(kind)
            return ["u", class_path(kind), self._children(enumerate(value), place, found, defaults)]
        for i, default in enumerate(defaults):
            if value is default and value is not inspect.Parameter.empty:
                return ["c", "default", i]
        raise Unsupported(place, value)

    def _children(
        self, items: Any, place: str, found: Layout, defaults: Sequence[Any], dot: str = ""
    ) -> list[list[Any]]:
        return [self._node(v, f"{place}.{k}" if dot else f"{place}[{k!r}]", found, defaults) for k, v in items]


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
        self.local: str = ""  # a class that no import path leads to: the tree is good for this process only
        self.symbolic: Callable[[Any], bool] | None = None  # set for results: there a plain int is a constant

    def note(self, kind: type) -> None:
        path = class_path(kind)
        if kind not in (list, tuple) and kind not in self.kinds:
            self.kinds.append(kind)
        if path not in _CLASSES:
            _CLASSES[path] = kind
        if not self.local and _import(path) is not kind:
            self.local = path


_CLASSES: dict[str, type] = {}


def class_path(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _import(path: str) -> Any:
    module, _, name = path.partition(":")
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def class_of(path: str) -> type:
    """The class that `path` names; only containers of the kinds that `_node` writes are ever given back."""
    kind = _CLASSES.get(path)
    if kind is None:
        import_module(path.partition(":")[0])
        kind = _import(path)
    if not isinstance(kind, type) or not (
        issubclass(kind, (list, tuple, dict)) or dataclasses.is_dataclass(kind)
    ):
        raise LookupError(f"no container class {path}")
    _CLASSES[path] = kind
    return kind


def inlined(node: Any, ints: Sequence[int]) -> Any:
    """A tree with its integers in it as constants."""
    numbers = iter(ints)

    def inline(node: Any) -> Any:
        if node[0] == "i":
            return ["c", "int", next(numbers)]
        return node if node[0] in ("t", "c") else [*node[:-1], [inline(child) for child in node[-1]]]

    return inline(node)


Build = Callable[[Sequence[Any]], Any]
_TYPES: dict[str, Callable[[Any], Any]] = {"str": str, "int": int, "bool": bool, "NoneType": lambda value: None}


def builder(tree: list[Any], constant: Callable[[str, Any], Any]) -> Build:
    """A function from the flat leaves of a tree to the structure; leaves are taken in the tree's order.

    `constant` turns the type and value of a framework's own constant, or a default, into the object.
    Raises LookupError where a class of the tree is not to be had in this process.
    """
    return _builder(tree, iter(range(2**31)), constant)


def _builder(node: list[Any], positions: Iterator[int], constant: Callable[[str, Any], Any]) -> Build:
    code = node[0]
    if code in ("t", "i"):
        index = next(positions)
        return lambda leaves: leaves[index]
    if code == "c":
        value = _constant(node[1], node[2], constant)
        return lambda leaves: value
    kind = class_of(node[1])
    children = [_builder(child, positions, constant) for child in node[-1]]
    if code == "d":
        keys = [_TYPES[name](key) for name, key in node[2]]
        return lambda leaves: kind((k, c(leaves)) for k, c in zip(keys, children, strict=True))
    if code == "D":
        return _dataclass(kind, list(zip(node[2], children, strict=True)))
    if code == "n":
        return lambda leaves: kind(*[c(leaves) for c in children])
    if kind is tuple:
        return lambda leaves: tuple([c(leaves) for c in children])
    return lambda leaves: kind([c(leaves) for c in children])


def _dataclass(kind: type, children: list[tuple[str, Build]]) -> Build:
    given = {f.name for f in dataclasses.fields(kind) if f.init}
    arguments = [(name, child) for name, child in children if name in given]
    others = [(name, child) for name, child in children if name not in given]

    def build(leaves: Sequence[Any]) -> Any:
        made = kind(**{name: child(leaves) for name, child in arguments})
        for name, child in others:
            object.__setattr__(made, name, child(leaves))
        return made

    return build


def _constant(kind: str, value: Any, constant: Callable[[str, Any], Any]) -> Any:
    if kind in ("NoneType", "bool", "str", "int"):
        return value
    if kind == "float":
        return float.fromhex(value)
    if kind == "complex":
        return complex(*map(float.fromhex, value))
    if kind == "bytes":
        return bytes.fromhex(value)
    return constant(kind, value)


def constants(frontend: Any) -> Callable[[str, Any], Any]:
    """How a tree's constants of a framework's own types (dtypes, devices) become objects again."""

    def constant(kind: str, value: Any) -> Any:
        for each in frontend.constant_types:
            if class_path(each) == kind:
                return frontend.constant(each, value)
        raise LookupError(f"no constant of class {kind}")

    return constant
