"""Structures from trees: what a layout on disk says of lists, dicts and objects, made of flat leaves again.

The nodes are those that `_signature` writes. Inner ones are numbered in the order of the tree: ``["a", n]`` is the n-th
again.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import sys
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import count
from operator import itemgetter
from types import FunctionType, MappingProxyType
from typing import Any

from hybrid_infer.objects import _beside, _constants, _origin, _state
from hybrid_infer.state._given import is_object

#: Classes to which no import path leads, by what stands for each in the trees of this process.
_LOCAL: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()
#: What trees call named tuples that stand in classes under other names than their own.
_ELSEWHERE: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
#: Who was given such a name first, and keeps it: with another class in its place, calls are answered for the first one.
_FIRST: dict[str, weakref.ref[type]] = {}
_numbers = count()
_DEPTH = 3  # of classes in classes that are looked through for such
_FIELDS = "!"  # behind the place of one stand its fields: another one may come to stand there


def class_path(kind: type) -> str:
    return f"{_origin.in_every_process(kind.__module__)}:{kind.__qualname__}"


def imported(path: str) -> Any:
    """What an import path leads to, of modules that are imported; None where it leads nowhere."""
    module, _, name = path.partition(":")
    name, with_fields, fields = name.partition(_FIELDS)
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value if not with_fields or _fields(value) == fields else None


def _fields(kind: Any) -> str | None:
    """Of a named tuple, the names of its fields."""
    named = isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
    return ",".join(kind._fields) if named else None


def name_of(kind: type) -> str:
    """What a tree calls a class: its import path or, where none leads to it, a name that only this process knows.

    So a class made by each call of a function, and one that was defined anew since, are told from their namesakes.
    """
    path = class_path(kind) if kind is not MappingProxyType else _beside.PROXY
    if imported(path) is kind:
        return path
    known = _ELSEWHERE.get(kind)
    if known is not None and imported(known) is kind:
        return known
    known = next((name for name, each in list(_LOCAL.items()) if each is kind), None)
    if known is not None:
        return known
    if (known := _elsewhere(kind)) is not None and _FIRST.setdefault(known, weakref.ref(kind))() is kind:
        _ELSEWHERE[kind] = known
        return known
    known = f"{path}#{os.getpid()}.{next(_numbers)}"  # a tree that a forked child made may come back to its parent
    _LOCAL[known] = kind
    return known


def lasts(name: str) -> bool:
    """Does what a tree calls a class mean something to other processes?"""
    return "#" not in name


def keeps_its_name(kind: type) -> Callable[[], bool] | None:
    """Tells whether a class is still the one that its name leads to; None where it is for good.

    Another one that was defined in its place has the same name in trees.
    """
    name = name_of(kind)
    if not lasts(name) or kind.__module__ == "builtins":
        return None
    module, _, path = name.partition(_FIELDS)[0].partition(":")
    holders, parts = sys.modules, path.split(".")

    def stands() -> bool:
        value: Any = holders.get(module)
        for part in parts:
            value = getattr(value, part, None)
        return value is kind

    return stands


def _elsewhere(kind: type) -> str | None:
    """What to call a named tuple by the class that holds it, where its own name leads nowhere.

    ``class Attention: Cache = namedtuple("Cache", "k v")`` makes such a one.
    """
    fields, module = _fields(kind), kind.__module__
    name, home = _origin.in_every_process(module), sys.modules.get(module)
    left: list[tuple[str, Any]] = [(f"{name}:", home)] if fields is not None else []
    seen: set[int] = set()
    for depth in range(_DEPTH):
        inner = []
        for path, holder in left:
            for attribute, value in sorted([*getattr(holder, "__dict__", {}).items()], key=lambda item: str(item[0])):
                if depth and value is kind:
                    found = f"{path}{attribute}{_FIELDS}{fields}"
                    return found if imported(found) is kind else None
                if isinstance(value, type) and value.__module__ == module and id(value) not in seen:
                    seen.add(id(value))
                    inner.append((f"{path}{attribute}.", value))
        left = inner
    return None


def class_of(name: str) -> type:
    """The class that a tree calls so; only containers of the kinds that `_node` writes are ever given back."""
    kind: Any = _LOCAL.get(name)
    if kind is None:
        import_module(name.partition(":")[0])
        kind = imported(name)
    if not isinstance(kind, type) or not (
        issubclass(kind, (list, tuple, dict)) or kind in _beside.STANDARD or dataclasses.is_dataclass(kind)
        or _state.plain(kind) or is_object(kind)
    ):  # fmt: skip
        raise LookupError(f"no container class {name}")
    return kind


def inlined(node: Any, ints: Sequence[int]) -> Any:
    """A tree with its integers in it as constants."""
    numbers = iter(ints)

    def inline(node: Any) -> Any:
        if node[0] == "i":
            return ["c", "int", next(numbers)]
        return node if node[0] in ("t", "c", "g", "a") else [*node[:-1], [inline(child) for child in node[-1]]]

    return inline(node)


Build = Callable[[Sequence[Any]], Any]
_TYPES: dict[str, Callable[[Any], Any]] = {"str": str, "int": int, "bool": bool, "NoneType": lambda value: None}


def builder(tree: list[Any], constant: Callable[[str, Any], Any]) -> Build:
    """A function from the flat leaves of a tree to the structure; leaves are taken in the tree's order.

    Behind them stand the objects of the call, where the tree is of results in which there are any.

    `constant` turns the type and value of a framework's own constant, or a default, into the object.
    Raises LookupError where a class of the tree is not to be had in this process.
    """
    again = frozenset(_again(tree))
    build = _Builder(constant, again).of(tree)
    return (lambda leaves: build(_Leaves(leaves))) if again else build


def _again(node: Any) -> Iterator[int]:
    """The numbers of the inner nodes that stand in more than one place."""
    if not node or node[0] in ("t", "i", "c", "g"):
        return
    if node[0] == "a":
        yield node[1]
        return
    for child in node[-1]:
        yield from _again(child)


class _Leaves(list[Any]):
    """The leaves of one structure, and what has been made of them so far that is needed again, by its number."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        super().__init__(leaves)
        self.made: dict[int, Any] = {}


class _Builder:
    """Makes the functions of a tree's nodes, in the tree's order; `again`: see `_again`."""

    def __init__(self, constant: Callable[[str, Any], Any], again: frozenset[int]) -> None:
        self._constant, self._repeated = constant, again
        self._leaf, self._inner = 0, count()

    def of(self, node: list[Any]) -> Build:
        code = node[0]
        if code in ("t", "i"):
            self._leaf += 1
            return itemgetter(self._leaf - 1)
        if code == "c":
            value = _constant(node[1], node[2], self._constant)
            if type(value) is set and node[1] == "set":  # which code may change
                return lambda leaves: _constants.decoded("set", node[2])
            return lambda leaves: value
        if code == "g":
            place = node[1] - node[2]
            return lambda leaves: leaves[place]
        if code == "a":
            known = node[1]
            return lambda leaves: leaves.made[known]  # type: ignore[attr-defined]  # which are _Leaves then
        number, first = next(self._inner), self._leaf
        children = [self.of(child) for child in node[-1]]
        leaves = slice(first, self._leaf) if all(child[0] in ("t", "i") for child in node[-1]) else None
        build = _structure(node, children, leaves)
        return _kept(build, number) if number in self._repeated else build


def _kept(build: Build, number: int) -> Build:
    def made(leaves: Any) -> Any:
        leaves.made[number] = found = build(leaves)
        return found

    return made


def _structure(node: list[Any], children: list[Build], part: slice | None) -> Build:
    """`part`: of the leaves, those that the structure consists of, where there is nothing else in it."""
    code, kind = node[0], class_of(node[1])
    if code == "f":
        names, made_by = [_TYPES[name](key) for name, key in node[2]], _beside.FACTORIES.get(node[3])
        return lambda leaves: defaultdict(made_by, zip(names, [c(leaves) for c in children], strict=True))
    if code == "q":
        return lambda leaves: deque([c(leaves) for c in children], node[2])
    if code == "p":
        return lambda leaves: MappingProxyType(children[0](leaves))
    if code == "d":
        keys = [_TYPES[name](key) for name, key in node[2]]
        return lambda leaves: kind(zip(keys, [c(leaves) for c in children], strict=True))
    if code == "D":
        return _dataclass(kind, list(zip(node[2], children, strict=True)))
    if code == "o":
        return _object(kind, list(zip(node[2], children, strict=True)))
    if part is not None and kind in (tuple, list):
        return lambda leaves: kind(leaves[part])
    if kind is tuple:
        return lambda leaves: tuple([c(leaves) for c in children])
    if kind is list:
        return lambda leaves: [c(leaves) for c in children]
    # As it was, whatever its class makes of arguments, where it is not one in C.
    if issubclass(kind, tuple) and isinstance(kind.__new__, FunctionType) and _state.native_base(kind) is tuple:
        return lambda leaves: tuple.__new__(kind, [c(leaves) for c in children])
    if issubclass(kind, list) and kind.__new__ is list.__new__:
        return lambda leaves: _list(kind, [c(leaves) for c in children])
    return (lambda leaves: kind(*[c(leaves) for c in children])) if code == "n" else (
        lambda leaves: kind([c(leaves) for c in children])
    )


def _list(kind: type, items: list[Any]) -> Any:
    made: Any = list.__new__(kind)
    list.extend(made, items)
    return made


def _dataclass(kind: type, children: list[tuple[str, Build]]) -> Build:
    """Makes one as it was, whatever its ``__init__`` makes of arguments, where its class in C does not say how."""
    if kind.__new__ in (object.__new__, dict.__new__, OrderedDict.__new__):
        return _of_fields(kind, children)
    given = {f.name for f in dataclasses.fields(kind) if f.init}
    arguments = [(name, child) for name, child in children if name in given]
    others = [(name, child) for name, child in children if name not in given]

    def build(leaves: Sequence[Any]) -> Any:
        made = kind(**{name: child(leaves) for name, child in arguments})
        for name, child in others:
            object.__setattr__(made, name, child(leaves))
        return made

    return build


def _of_fields(kind: Any, children: list[tuple[str, Build]]) -> Build:
    native = _beside.native(kind) if issubclass(kind, dict) else None

    def build(leaves: Sequence[Any]) -> Any:
        made = kind.__new__(kind)
        for name, child in children:
            value = child(leaves)
            object.__setattr__(made, name, value)
            if native is not None and value is not None:
                native.__setitem__(made, name, value)
        return made

    return build


def _object(kind: Any, children: list[tuple[str, Build]]) -> Build:
    def build(leaves: Sequence[Any]) -> Any:
        made = kind.__new__(kind)
        vars(made).update((name, child(leaves)) for name, child in children)
        return made

    return build


def _constant(kind: str, value: Any, constant: Callable[[str, Any], Any]) -> Any:
    if kind in _constants.PLAIN or kind in _constants.KINDS:
        return _constants.decoded(kind, value)
    if kind == "type":
        found = imported(value)
        if not isinstance(found, type):
            raise LookupError(f"no class {value}")
        return found
    if kind == "enum":
        path, name = value
        members = _LOCAL.get(path) or imported(path)
        if not isinstance(members, enum.EnumMeta) or name not in members.__members__:
            raise LookupError(f"no member {name} of {path}")
        return members[name]
    if kind == "flag":
        path, number = value
        flags = _LOCAL.get(path) or imported(path)
        if not isinstance(flags, enum.EnumMeta) or not issubclass(flags, enum.Flag):
            raise LookupError(f"no flags {path}")
        try:
            return flags(number)
        except ValueError as fault:  # of bits that have no name
            raise LookupError(str(fault)) from fault
    return constant(kind, value)


def leaf_kinds(node: Any) -> list[str]:
    """What the leaves of a tree are, in order: tensors ("t") and integers ("i"). Of no tree there are none."""
    if not node or node[0] in ("c", "g", "a"):
        return []
    if node[0] in ("t", "i"):
        return [node[0]]
    return [kind for child in node[-1] for kind in leaf_kinds(child)]


def constants(frontend: Any, defaults: Sequence[Any] = ()) -> Callable[[str, Any], Any]:
    """How a tree's constants of a framework's own types (dtypes, devices), and a method's defaults, become objects."""

    def constant(kind: str, value: Any) -> Any:
        if kind == "default":
            return defaults[value]
        for each in frontend.constant_types:
            if class_path(each) == kind:
                return frontend.constant(each, value)
        raise LookupError(f"no constant of class {kind}")

    return constant
