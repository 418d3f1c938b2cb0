"""State of single objects: what an instance holds beside its ``__dict__``, and what objects are called."""

from __future__ import annotations

import copyreg
import enum
import struct
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from hybrid_infer.objects import _origin

#: Stands for a name that was looked up and not found.
ABSENT = enum.Enum("ABSENT", "ABSENT").ABSENT  # type: ignore[attr-defined]
#: Classes of values that say all about themselves in their `repr`, and hold nothing.
PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})
#: What shows the content of a dict, which is their ``mapping``.
VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))

_WORD = struct.calcsize("P")
_NO_INSTANTIATION = 1 << 7


def module_name(scope: Mapping[str, Any]) -> str:
    """Of the module with these globals."""
    return _origin.in_every_process(str(scope.get("__name__", "?")))


def name_of(value: Any) -> str:
    if isinstance(value, dict):  # which may make an entry of each name that it is asked for
        return f"{_origin.in_every_process(type(value).__module__)}.{type(value).__qualname__}"
    try:
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    except Exception:  # whatever an object may raise that computes its attributes: some of torch.cuda's do
        module = name = None
    # An object may answer to any name, as torch.classes does, by what has no text.
    home, own = (text if isinstance(text, str) else "" for text in (module, name))
    return f"{_origin.in_every_process(home or '?')}.{own or type(value).__qualname__}"


def same(value: Any, before: Any) -> bool:
    """The same object, or plain values that no program can tell apart."""
    return value is before or (type(value) is type(before) and type(value) in PLAIN and repr(value) == repr(before))


def cell_contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


#: Builtin types whose content can be read past any override in a subclass.
CONTENTS: dict[type, Callable[[Any], Any]] = {
    list: lambda value: list(list.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
    OrderedDict: lambda value: dict(OrderedDict.items(value)),
    defaultdict: lambda value: [value.default_factory, dict(dict.items(value))],
    deque: lambda value: [value.maxlen, list(deque.__iter__(value))],
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    str: lambda value: str.__str__(value),
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    bytearray: lambda value: bytes(value),
    int: lambda value: int.__int__(value),
    float: lambda value: float.__float__(value),
    complex: lambda value: complex(value.real, value.imag),
    BaseException: lambda value: value.args,
}

#: Of which an instance is its own content.
_CONTAINERS = (dict, OrderedDict, defaultdict, list, tuple, set, frozenset, deque)


def content(container: Any) -> Any:
    """What a builtin container holds, read past any override in a subclass; itself where its class is the builtin one.

    A registry that loads its entries when it is looked through, which libraries make of dicts, is not looked through.
    """
    kind = type(container)
    if kind in _CONTAINERS:
        return container
    found = next(CONTENTS[base](container) for base in kind.__mro__ if base in CONTENTS)
    return found[1] if issubclass(kind, (defaultdict, deque)) else found


def elements(container: Any) -> Collection[Any]:
    """The same of one whose keys, if it has any, do not matter: of a dict, its values."""
    found = content(container)
    return found.values() if isinstance(found, dict) else found


def native_base(kind: type) -> type | None:
    """The nearest class in C that holds state of its own in instances of `kind`; None if there is none."""
    for base in kind.__mro__[:-1]:
        if base.__flags__ & _NO_INSTANTIATION or isinstance(base.__dict__.get("__new__"), types.BuiltinFunctionType):
            return BaseException if issubclass(base, BaseException) else base
        # Python's own classes grow by a word per slot, and by at most two for __dict__ and __weakref__.
        slots = (
            [x for x in vars(base).values() if isinstance(x, types.MemberDescriptorType)]
            if "__slots__" in vars(base)
            else []
        )
        words = len(slots) + ("__dict__" in vars(base)) + ("__weakref__" in vars(base))
        parent = base.__base__
        if parent is not None and base.__basicsize__ - parent.__basicsize__ > _WORD * words:
            return BaseException if issubclass(base, BaseException) else base
    return None


def plain(kind: type, but: Collection[str] = ()) -> bool:
    """Are instances of a Python class no more than their attributes, and copied by them alone?

    Whatever it does where it is asked by one of the names in `but`.
    """
    return (
        kind.__module__ != "builtins"
        and bool(kind.__dictoffset__)
        and all(getattr(kind, name, None) is getattr(object, name, None) for name in _COPYING if name not in but)
        and kind not in copyreg.dispatch_table
        and native_base(kind) is None
        and not any(isinstance(x, types.MemberDescriptorType) for base in kind.__mro__ for x in vars(base).values())
    )


_COPYING = (
    "__new__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__",
    "__copy__", "__deepcopy__", "__del__",
)  # fmt: skip


def told(value: Any, kind: type, native: type | None) -> Sequence[Any] | None:
    """What a library's class says of an object's state for copying; None if it says nothing.

    `native` is asked past any override in a user's subclass.
    """
    reducer = copyreg.dispatch_table.get(kind)
    try:
        if reducer is not None:
            reduced: Any = reducer(value)
        elif _origin.of_object(kind) != _origin.USER:
            reduced = value.__reduce_ex__(4)
        elif native is not None and "__reduce__" in vars(native):
            reduced = vars(native)["__reduce__"](value)
        else:
            return None
    except Exception:
        return None
    if isinstance(reduced, str):
        # It claims to be a global of its library; a function made at run time does so too.
        found: Any = sys.modules.get(getattr(value, "__module__", None) or kind.__module__)
        for part in reduced.split("."):
            found = getattr(found, part, ABSENT)
        return [reduced] if found is value else None
    # Items of lists and dicts come as iterators.
    return [*reduced[:3], *(list(part) if part is not None else None for part in reduced[3:5])]


def slots(value: Any, kind: type) -> Iterator[tuple[str, Any]]:
    """Names and values of an object's ``__slots__``, those of its bases included."""
    for name, member in members(kind):
        yield name, slot(member, value)


def members(kind: type) -> Iterator[tuple[str, types.MemberDescriptorType]]:
    """Names of the ``__slots__`` of a class and its bases, and what reads them, whatever else the name stands for."""
    for base in kind.__mro__:
        names = base.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            member = base.__dict__.get(_mangled(name, base))
            if isinstance(member, types.MemberDescriptorType):
                yield name, member


def is_slot(value: Any) -> bool:
    """Is it one of the ``__slots__`` of a class? Others of such attributes are a class's in C, as links are in a graph.
    """
    return isinstance(value, types.MemberDescriptorType) and "__slots__" in vars(value.__objclass__)


def slot(member: types.MemberDescriptorType, value: Any) -> Any:
    try:
        return member.__get__(value, type(value))
    except AttributeError:
        return ABSENT


def _mangled(name: str, kind: type) -> str:
    return f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
