"""Containers of settings whose look-ups are noted: dicts, objects derived from `dict`, and `types.SimpleNamespace`.

A copy that is traced holds an instance of such a class in the place of each of them. Its every way to its content is
noted by name; what looks at more than single entries is noted as ``ALL``.
"""

from __future__ import annotations

import copy
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from hybrid_infer.fingerprint import _type_calls
from hybrid_infer.objects import _origin
from hybrid_infer.objects._state import PLAIN
from hybrid_infer.state._reads import by_program

#: Stands among the names that were looked up for all of a container.
ALL = "__dict__"
#: Stands there where code was run that may tell such a class from the one it stands for: nothing noted is of use.
UNSUITED = ""
#: The names looked up on each of them, by its id, while it is traced.
SINKS: dict[int, set[str]] = {}

#: Layers and hooks are in other ones.
_OF_SETTINGS = frozenset({*PLAIN, dict, list, tuple} - {type(None)})
#: What Python asks a class derived from `dict` for an entry by, and `get`.
_ACCESSORS = frozenset({"__getattr__", "__getitem__", "__missing__", "__contains__", "get"})
_CODE = (types.FunctionType, staticmethod, classmethod, property)
_IN_C = (types.MethodDescriptorType, types.WrapperDescriptorType)
_HEAP = 1 << 9  # the flag of classes that are made while the program runs, as those in C are not
#: In whose place a class that notes has its own.
_WRITERS = frozenset({"__setattr__", "__delattr__"})
#: Which have no part in what a container holds, or make one.
_OTHERS = frozenset(
    {"__class__", "__class_getitem__", "__new__", "__init__", "__init_subclass__", "__subclasshook__", "fromkeys",
     "__getattribute__", "__setattr__", "__delattr__", "__doc__", "__hash__", "__dir__", "__sizeof__", "__module__",
     "__dict__", "__weakref__", "__annotations__", "__firstlineno__", "__static_attributes__", "__qualname__",
     "__annotate_func__", "__annotations_cache__", "__annotate__", "__orig_bases__", "__parameters__"}
)  # fmt: skip


def note(value: Any, name: str) -> Any:
    """Note that a name was looked up on a container, and give it back."""
    sink = SINKS.get(id(value))
    if sink is not None:
        sink.add(name)
    return value


class NotingDict(dict[Any, Any]):
    """A dict in a copy."""

    __slots__ = ()

    def _entry(self, key: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = note(self, key if type(key) is str else ALL)
        return found

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return dict

    def __getitem__(self, key: Any) -> Any:
        return dict.__getitem__(NotingDict._entry(self, key), key)

    def get(self, key: Any, default: Any = None) -> Any:
        return dict.get(NotingDict._entry(self, key), key, default)

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(NotingDict._entry(self, key), key)

    def copy(self) -> dict[Any, Any]:
        return dict(dict.items(note(self, ALL)))

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return copy.deepcopy(NotingDict.copy(self), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (NotingDict.copy(self),)


def _noting_all(name: str) -> Any:
    method = getattr(dict, name)

    def looked(self: Any, *args: Any, **kwargs: Any) -> Any:
        for each in args:
            note(each, ALL)
        return method(note(self, ALL), *args, **kwargs)

    looked.__name__ = name
    return looked


for _name in dir(dict):
    if _name not in _OTHERS | vars(NotingDict).keys():
        setattr(NotingDict, _name, _noting_all(_name))
# Which code may ask for.
NotingDict.__name__, NotingDict.__qualname__, NotingDict.__module__ = "dict", "dict", "builtins"


class _Whole:
    """What looks at all of a copy is done with an object of the class that it stands for."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        if by_program(sys._getframe(1)):
            note(self, ALL)
        return thawed(self).__reduce_ex__(protocol)

    def __copy__(self) -> Any:
        return copy.copy(thawed(note(self, ALL)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(thawed(note(self, ALL)), memo)


class NotingNamespace(_Whole, types.SimpleNamespace):
    """A `types.SimpleNamespace` in a copy."""

    __slots__ = ()
    __hash__ = None

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return types.SimpleNamespace
        if name != "__dict__" or by_program(sys._getframe(1)):
            note(self, name)
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(note(self, ALL), name, value)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(note(self, ALL), name)

    def __eq__(self, other: object) -> Any:
        return thawed(note(self, ALL)) == note(other, ALL)

    def __ne__(self, other: object) -> Any:
        return thawed(note(self, ALL)) != note(other, ALL)

    def __reduce__(self) -> Any:
        return thawed(note(self, ALL)).__reduce__()

    def __getstate__(self) -> Any:
        return {**state(note(self, ALL))}

    def __repr__(self) -> str:
        return repr(thawed(note(self, ALL)))

    def __replace__(self, /, **changes: Any) -> Any:
        return types.SimpleNamespace(**{**state(note(self, ALL)), **changes})


NotingNamespace.__name__, NotingNamespace.__qualname__ = "SimpleNamespace", "SimpleNamespace"
NotingNamespace.__module__, NotingNamespace.__doc__ = "types", types.SimpleNamespace.__doc__


def thawed(value: Any) -> Any:
    """An object of the class that such a one stands for, that holds the same."""
    kind = original(value)
    if kind is dict:
        return dict(dict.items(value))
    made: Any = types.SimpleNamespace() if kind is types.SimpleNamespace else dict.__new__(kind)
    fill(made, value, lambda held: held)
    return made


def blank(kind: type) -> Any:
    """An empty container that stands for one of a class."""
    made: Any = class_for(kind)
    return types.SimpleNamespace.__new__(made) if kind is types.SimpleNamespace else dict.__new__(made)


def fill(made: Any, value: Any, copied: Any) -> None:
    """Put copies of what a container holds into an empty one."""
    if isinstance(value, dict):
        dict.update(made, {name: copied(held) for name, held in dict.items(value)})
    own = state(value)
    if own is value:
        object.__setattr__(made, "__dict__", made)
    elif own is not None:
        state(made).update((name, copied(held)) for name, held in own.items())


def state(value: Any) -> Any:
    """The attributes of a container, past any accessor of its class; None where it has none."""
    return None if type(value) in (dict, NotingDict) else object.__getattribute__(value, "__dict__")


#: Classes that note for others, which would keep these alive if they were kept; None for what has none.
_CLASSES: weakref.WeakKeyDictionary[type, weakref.ref[type] | None] = weakref.WeakKeyDictionary()
_ORIGINALS: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()


def original(value: Any) -> type:
    """The class that a container in a copy stands for."""
    kind = type(value)
    if kind is NotingDict:
        return dict
    if kind is NotingNamespace:
        return types.SimpleNamespace
    found = _ORIGINALS.get(kind)
    return kind if found is None else found() or kind


def notes(value: Any) -> bool:
    """Is it such a container in a copy?"""
    return issubclass(type(value), (NotingDict, NotingNamespace))


def class_for(kind: type) -> type | None:
    """The class whose instances stand for those of a class in a copy; None where none can."""
    if kind is dict:
        return NotingDict
    if kind is types.SimpleNamespace:
        return NotingNamespace
    if not issubclass(kind, dict) or issubclass(kind, NotingDict):
        return None
    known = _CLASSES.get(kind)
    made = None if known is None else known()
    if made is None and (known is not None or kind not in _CLASSES):
        made = _made(kind) if _of_python(kind) else None
        _CLASSES[kind] = None if made is None else weakref.ref(made)
        if made is not None:
            _ORIGINALS[made] = weakref.ref(kind)
    return made


def bases(kind: type) -> tuple[type, ...]:
    """Of a class derived from `dict`, itself and what is between them."""
    return kind.__mro__[: kind.__mro__.index(dict)]


def _of_python(kind: type) -> bool:
    """Is all that instances hold in the dict that they are and in their attributes, with no accessor but the usual?"""
    if type(kind) is not type or kind.__mro__[-2] is not dict or not kind.__dictoffset__:
        return False
    own = [vars(base) for base in bases(kind)]
    unlike = ("__getattribute__", "__class__", "__init_subclass__", "__slots__", "__new__")
    if any(name in each for each in own for name in unlike):
        return False
    described = (each["__dict__"] for each in own if "__dict__" in each)
    return all(type(each) is types.GetSetDescriptorType for each in described) and all(
        bool(base.__flags__ & _HEAP) for base in bases(kind)
    )


def _sound(name: str, held: Any, base: type) -> bool:
    """Does what a class computes do the same to what stands for its instances? Of a library, only accessors may."""
    library = bool(_origin.of_object(base))
    if library and name not in _ACCESSORS:
        return False
    if isinstance(held, (staticmethod, classmethod)):
        held = held.__func__
    functions = [each for each in (held.fget, held.fset, held.fdel) if each] if type(held) is property else [held]
    if any(not isinstance(each, types.FunctionType) for each in functions):
        return name == "__getattr__" and held in (dict.get, dict.__getitem__)
    return not any(_tells_apart(each.__code__, each.__globals__) for each in functions)


def _tells_apart(code: types.CodeType, scope: Mapping[str, Any]) -> bool:
    """May a function tell an object from one of a class derived from its own, or look at it past that?"""
    if not {"__getattribute__", "getattr_static"}.isdisjoint(code.co_names) or _type_calls.compares(code, scope):
        return True
    held = (scope.get(name) for name in code.co_names)
    return _type_calls.looks_up_on(dict, code, scope) or any(map(looks_up, held))


def looks_up(value: Any) -> bool:
    """Is it a method of `dict` itself, or of a class in C derived from it, which looks at an object past its class?"""
    return isinstance(value, _IN_C) and issubclass(getattr(value, "__objclass__", object), dict)


def compares_unnoted(value: Any) -> bool:
    """Is it a dict of settings of another class than `dict`, or such a class, that compares itself in C?

    Left of ``==`` it is asked before what notes, unless in a copy it notes itself.
    """
    kind = value if isinstance(value, type) else type(value)
    if not issubclass(kind, dict) or kind is dict or kind.__eq__ not in (dict.__eq__, OrderedDict.__eq__):
        return False
    return value is kind or not _OF_SETTINGS.isdisjoint(map(type, dict.values(value)))


def _made(kind: type) -> type:
    held = {name: (each, base) for base in reversed(bases(kind)) for name, each in vars(base).items()}
    held = {name: each for name, each in held.items() if name not in _OTHERS}
    code = {name: hasattr(type(each), "__get__") for name, (each, _) in held.items()}
    # What is no code may be replaced on the class, and nothing else tells of that.
    unsuited = {name for name, (each, base) in held.items() if not code[name] or not _sound(name, each, base)}
    assign: Any = kind.__setattr__
    delete: Any = kind.__delattr__

    def __getattribute__(self: Any, name: str) -> Any:
        if name == "__class__":
            return kind
        sink = SINKS.get(id(self))
        if sink is not None:
            if name == "__dict__":
                if by_program(sys._getframe(1)):
                    sink.add(ALL)
            elif name in unsuited:
                sink.add(UNSUITED)
            else:  # also what the class has, which an attribute may hide
                sink.add(name)
        return object.__getattribute__(self, name)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        assign(note(self, ALL), name, value)

    def __delattr__(self: Any, name: str) -> None:
        delete(note(self, ALL), name)

    def called(name: str, function: Any) -> Any:
        def looked(self: Any, *args: Any, **kwargs: Any) -> Any:
            return function(note(self, UNSUITED), *args, **kwargs)

        looked.__name__ = name
        return looked

    body: dict[str, Any] = {name: getattr(_Whole, name) for name in ("__reduce_ex__", "__copy__", "__deepcopy__")}
    body = {name: each for name, each in body.items() if name not in held}
    body |= {
        name: called(name, each) for name, (each, _) in held.items()
        if name in unsuited and callable(each) and name.startswith("__") and name not in _WRITERS
    }  # fmt: skip
    body |= {"__getattribute__": __getattribute__, "__setattr__": __setattr__, "__delattr__": __delattr__}
    body |= {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind, NotingDict), body)


def functions(kind: type) -> Iterator[tuple[type, str, Any]]:
    """What a program's class derived from `dict` computes with: a base, a name and what it has there."""
    if not issubclass(kind, dict):
        return
    for base in bases(kind):
        if not _origin.of_object(base):
            yield from ((base, name, each) for name, each in vars(base).items() if isinstance(each, _CODE))


def boxes(value: Any) -> list[Any]:
    """The dicts that a container keeps its entries in."""
    own = state(value)
    return [*([value] if isinstance(value, dict) else []), *([own] if own is not None and own is not value else [])]
