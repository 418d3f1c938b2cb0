"""Objects taken apart into what tells them from others: values in C, wrappers, instances by class and state."""

from __future__ import annotations

import contextvars
import copyreg
import enum
import functools
import logging
import operator
import os
import struct
import sys
import types
import weakref
from abc import abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from hybrid_infer import _keys
from hybrid_infer.fingerprint import _code
from hybrid_infer.fingerprint._namespaces import Mentions
from hybrid_infer.objects import _at_hand, _locks, _origin, _schemas, _state
from hybrid_infer.objects._state import cell_contents, name_of


@dataclass(frozen=True)
class External:
    """A tensor, layer or ndarray that code reaches outside its layer.

    ``kind``: "closure", "global", "default", "attribute" or "argument" (of a partial or bound method). ``holder``:
    what holds it, in words; ``name``: under which name or path there.
    """

    kind: str
    holder: str
    name: str
    object: Any


_BUILTIN = (types.BuiltinFunctionType, types.MethodWrapperType)
_DESCRIPTOR = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_LRU = type(functools.lru_cache(lambda: None))
#: Where the frameworks' compilers keep the user's function: what they wrap is the user's, how is the version's.
_COMPILERS = {
    "torch.jit.torch.jit.ScriptFunction": "_torchdynamo_inline",
    "torch.jit.ScriptFunction": "_torchdynamo_inline",
    "paddle.jit.dy2static.program_translator.SymbolicStaticFunction": "_dygraph_function",
    "paddle.jit.dy2static.program_translator.ASTStaticFunction": "_dygraph_function",
}
#: What Python keeps on a member of an enumeration, beside what the program does.
_OF_MEMBERS = frozenset({"_name_", "_value_", "_sort_order_", "_inverted_", "__objclass__", "__doc__"})
#: Values in C that say all about themselves in their `repr` and offer no other way to read it.
_BY_REPR = frozenset(
    {
        "torch.finfo",
        "torch.iinfo",
        "typing.TypeVar",
        *(f"paddle.base.libpaddle.{name}" for name in ("CPUPlace", "CUDAPlace", "CUDAPinnedPlace", "finfo", "iinfo")),
    }
)


def library_of(function: types.FunctionType) -> str:
    module = function.__globals__.get("__name__")
    if function.__code__.co_filename.startswith("<") and isinstance(module, str):
        home = sys.modules.get(module)
        if home is not None and getattr(home, "__dict__", None) is not function.__globals__:
            module = ""  # run by exec in a namespace that only calls itself so
    return _origin.of_file(function.__code__.co_filename, module if isinstance(module, str) else "")


def made_at_run_time(value: types.FunctionType | type) -> bool:
    """Is it a lambda, or made by a call of a function, so that its name says nothing about what it does?"""
    return "<" in value.__qualname__


def undecorated(value: Any) -> Any:
    """The function behind a wrapper of this library, whose own state has no part in a fingerprint."""
    method = getattr(value, "__hybrid_infer__", None)
    return getattr(method, "function", None) or getattr(value, "__wrapped__", value)


class Objects(_keys.Encoder):
    """Encodes objects and records what cannot be encoded.

    Everything that is reached becomes an ingredient under a label of its own. ``place``: the kind, holder and name of
    what is being encoded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ingredients: dict[str, str] = {}
        self.opaque: list[str] = []
        self.externals: list[External] = []
        self.mentions = Mentions()
        self.loggers: dict[str, logging.Logger] = {}
        self.sentinels: dict[object, int] = {}
        self.context_variables = False
        self.caches: list[Any] = []
        self.documents: list[tuple[str, Any]] = []
        self.place = ("argument", "the call", "")

    @abstractmethod
    def user_class(self, kind: type) -> bytes:
        """A reference to a class."""

    @abstractmethod
    def methods_of(self, owner: Any, name: str, value: Any) -> AbstractContextManager[None]:
        """Inside, a method of a class is encoded."""

    @abstractmethod
    def entered(self, kind: type) -> None:
        """An instance of this class is at hand: what code calls without a mention of its name counts."""

    @abstractmethod
    def module(self, module: types.ModuleType) -> bytes:
        """A reference to a module."""

    @abstractmethod
    def named_logger(self, logger: logging.Logger) -> None:
        """A logger is at hand: what the program keeps on it counts where code mentions it."""

    def ingredient(self, label: str, value: Any, place: tuple[str, str, str]) -> None:
        """Record the digest of `value` under `label`."""
        outer, self.place = self.place, place
        trail, self.trail = self.trail, []
        try:
            self.ingredients[label] = _keys.hash_bytes(self.encode(value))
        except _keys.Unhashable as error:
            self.note(error.what)
            self.ingredients[label] = "opaque"
        finally:
            self.place, self.trail = outer, trail

    def note(self, why: str) -> None:
        kind, holder, name = self.place
        path = f"`{name}{self.path}`" if name else self.path
        self.opaque.append(f"{kind} {path} of {holder}: {why}")

    def library(self, label: str) -> bytes:
        if label != _origin.USER:
            self.ingredients.setdefault(f"library {label}", _origin.version(label))
        return label.encode()

    def external(self, value: Any) -> None:
        kind, holder, name = self.place
        self.externals.append(External(kind, holder, name + self.path, value))

    def object(self, value: Any) -> bytes:
        """Anything that is not plain data, a function, a class, a tensor or a layer."""
        kind = type(value)
        if isinstance(value, types.ModuleType):
            return self.module(value)
        if isinstance(value, types.MethodType):
            with self.methods_of(type(value.__self__), "", value.__func__):
                return self.parts(b"M", value.__func__, value.__self__)
        if isinstance(value, (staticmethod, classmethod)):
            return self.parts(b"S", kind.__name__, value.__func__)
        if isinstance(value, property):
            return self.parts(b"P", value.fget, value.fset, value.fdel, kind)
        if kind is functools.partial:
            return self.parts(b"p", value.func, value.args, value.keywords)
        if kind is functools.cached_property:
            return self.parts(b"Q", value.func)
        if kind is _LRU:
            self.caches.append(value)
            return self.parts(b"W", value.__wrapped__)
        if _origin.of_object(kind) == "hybrid_infer" and undecorated(value) is not value:
            return self.parts(b"W", undecorated(value), getattr(value, "__self__", None))
        if isinstance(value, _BUILTIN) or kind.__name__ == "cython_function_or_method":
            owner = getattr(value, "__self__", None)
            library = _origin.of_object(value)
            if library == _origin.USER:
                return self.compiled(value)
            self.library(library)
            bound = None if isinstance(owner, types.ModuleType) else owner
            return self.parts(b"B", name_of(value), bound)
        if isinstance(value, _DESCRIPTOR):
            return self.parts(b"D", value.__name__, name_of(value.__objclass__))
        if isinstance(value, types.CodeType):
            return _keys.frame(b"K", _code.describe(value).digest)
        if isinstance(value, types.CellType):
            return self.parts(b"V", cell_contents(value))
        if isinstance(value, types.MappingProxyType):
            return self.parts(b"m", dict(value))
        if kind in _state.VIEWS:
            return self.parts(b"v", kind.__name__, list(value))
        if kind in _locks.KINDS:  # code that asks whether it is held is told from other code by a trace
            return self.parts(b"u", kind.__name__)
        if kind is contextvars.ContextVar:  # what it holds is another thing in each context; a trace sees who asks
            self.context_variables = True
            return self.parts(b"x", value.name)
        if kind is weakref.ref:
            return self.parts(b"w", value())
        if kind is object:  # of which code asks whether it is one that it knows: the first to be met, or the second
            return self.parts(b"o", self.sentinels.setdefault(value, len(self.sentinels)))
        if isinstance(value, logging.Logger):
            # What it does with messages has no part in results, and its handlers hold files and locks.
            self.loggers[value.name] = value
            self.named_logger(value)
            return self.parts(b"l", value.name)
        shown = f"{kind.__module__}.{kind.__qualname__}"
        if shown in _COMPILERS:
            return self.parts(b"W", getattr(value, _COMPILERS[shown], None) or value.__name__)
        if shown in _BY_REPR:
            self.library(_origin.of_object(kind))
            return self.parts(b"r", shown, repr(value))
        if shown in _schemas.KINDS:
            self.library(_origin.of_object(kind))
            return self.parts(b"c", shown, _schemas.of(value))
        if kind is struct.Struct:
            return self.parts(b"s", value.format)
        if isinstance(value, enum.Enum):
            more = {k: v for k, v in vars(value).items() if k not in _OF_MEMBERS}
            self.document(value, vars(value))
            return self.parts(b"E", kind, value._name_, value._value_, more)
        if value is os.environ:
            # Reading it keeps a method from being captured; a key over all of it would never be met again.
            return b"e"
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic, numpy.dtype)):
            if isinstance(value, numpy.ndarray):
                self.external(value)
            if type(value) is numpy.ndarray or not isinstance(value, numpy.ndarray):
                return self.special(value)
        return self.instance(value, kind)

    def document(self, value: Any, state: dict[str, Any]) -> None:
        """What an object says about itself counts where code looks at that."""
        if "__doc__" in state:
            self.documents.append((name_of(type(value)), state["__doc__"]))

    def compiled(self, value: Any) -> bytes:
        """A function of an extension module that no distribution brought: by the content of its file."""
        filename = getattr(sys.modules.get(value.__module__), "__file__", None)
        if not isinstance(filename, str):
            raise _keys.Unhashable(self.path, f"{name_of(value)} is compiled and has no file")
        try:
            with open(filename, "rb") as file:
                return _keys.frame(b"O", name_of(value).encode(), _keys.hash_bytes(file.read()).encode())
        except OSError as error:
            raise _keys.Unhashable(self.path, f"{filename} cannot be read: {error.strerror}") from None

    def parts(self, tag: bytes, *values: Any) -> bytes:
        return _keys.frame(tag, *(self.encode(value) for value in values))

    def instance(self, value: Any, kind: type) -> bytes:
        """An object by its class and state. Raises Unhashable if it has state that cannot be read."""
        parts = [self.user_class(kind)]
        self.entered(kind)
        native = _state.native_base(kind)
        foreign = _origin.of_object(kind) != _origin.USER
        # A library's own account of its state leaves out what it only keeps at hand (a path's hash).
        reduces = kind in copyreg.dispatch_table or any(
            "__reduce__" in vars(base) or "__reduce_ex__" in vars(base) for base in kind.__mro__[:-1]
        )
        if native in _state.CONTENTS and not (foreign and reduces):
            parts.append(self.at("", _state.CONTENTS[native](value)))
        elif native is not None or (foreign and reduces):
            reduced = _state.told(value, kind, native)
            if reduced is None:
                raise _keys.Unhashable(self.path, f"the state of a {name_of(kind)} cannot be read")
            parts.append(self.encode(reduced))
            if kind in (operator.attrgetter, operator.methodcaller):
                self.mentions.used.update(name for arg in reduced[1] if isinstance(arg, str) for name in arg.split("."))
            if foreign:
                return _keys.frame(b"R", *parts)
        at_hand = _at_hand.of(value, kind)
        state = getattr(value, "__dict__", None)
        if isinstance(state, dict):
            self.document(value, state)
            for name, item in list(state.items()):
                if name == "__doc__" or name in at_hand:
                    continue
                parts += (name.encode() if isinstance(name, str) else b"", self.at(f".{name}", item))
        for name, item in _state.slots(value, kind):
            if name not in at_hand:
                parts += (name.encode(), self.at(f".{name}", item))
        return _keys.frame(b"I", *parts)
