"""The walk behind a fingerprint: from code to names, from names to values and classes, and back to code."""

from __future__ import annotations

import builtins
import copyreg
import enum
import functools
import importlib.util
import logging
import operator
import os
import struct
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hybrid_infer import _code, _keys, _origin, _state
from hybrid_infer._state import ABSENT, cell_contents, name_of

Test = Callable[[Any], bool]


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


#: Names that describe a class or belong to its machinery.
_NEVER = frozenset(
    {
        "__doc__",
        "__module__",
        "__dict__",
        "__weakref__",
        "__qualname__",
        "__name__",
        "__firstlineno__",
        "__static_attributes__",
        "__slots__",
        "__abstractmethods__",
        "_abc_impl",
        "__orig_bases__",
        "__parameters__",
        "__dataclass_params__",
        "__classcell__",
        "__conditional_annotations__",
        "__type_params__",
        "__annotations_cache__",
        "__annotate__",
        "__annotate_func__",
        "__annotations__",
        "__del__",
        "__dir__",
        "__sizeof__",
        "__set_name__",
    }
)
#: Run when an instance is made, which is over for the layers of a tree.
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__"})
_COPIERS = frozenset(
    {
        "__reduce__",
        "__reduce_ex__",
        "__getstate__",
        "__setstate__",
        "__getnewargs__",
        "__getnewargs_ex__",
        "__copy__",
        "__deepcopy__",
        "__replace__",
    }
)
_COPYING = frozenset({"copy", "deepcopy", "replace", "dumps"})
_FORMATTERS = frozenset({"__repr__", "__str__", "__format__"})
_ENTRIES = frozenset({"forward", "__call__", "__wrapped__"})
#: Root classes of the frameworks' layers: a user method that replaces one of theirs is not thereby called in forward.
_ROOTS = frozenset({("torch.nn.modules.module", "Module"), ("paddle.nn.layer.layers", "Layer")})
_PLAIN_METACLASSES = frozenset({"builtins", "abc", "enum", "typing"})


_BUILTIN = (types.BuiltinFunctionType, types.MethodWrapperType)
_DESCRIPTOR = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_LRU = type(functools.lru_cache(lambda: None))
_PLAIN = (bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset)
#: Where the frameworks' compilers keep the user's function: what they wrap is the user's, how is the version's.
_COMPILED = "_torchdynamo_orig_callable"
_COMPILERS = {
    "torch.jit.torch.jit.ScriptFunction": "_torchdynamo_inline",
    "torch.jit.ScriptFunction": "_torchdynamo_inline",
    "paddle.jit.dy2static.program_translator.SymbolicStaticFunction": "_dygraph_function",
    "paddle.jit.dy2static.program_translator.ASTStaticFunction": "_dygraph_function",
}
#: Values in C that say all about themselves in their `repr` and offer no other way to read it.
_BY_REPR = frozenset(
    {
        "torch.finfo",
        "torch.iinfo",
        "typing.TypeVar",
        *(f"paddle.base.libpaddle.{name}" for name in ("CPUPlace", "CUDAPlace", "CUDAPinnedPlace", "finfo", "iinfo")),
    }
)
_MAX_OBJECTS = 100_000


def _root(kind: type) -> bool:
    return (kind.__module__, kind.__qualname__) in _ROOTS


def _library_of(function: types.FunctionType) -> str:
    module = function.__globals__.get("__name__")
    return _origin.of_file(function.__code__.co_filename, module if isinstance(module, str) else "")


def _undecorated(value: Any) -> Any:
    """The function behind a wrapper of this library, whose own state has no part in a fingerprint."""
    method = getattr(value, "__hybrid_infer__", None)
    return getattr(method, "function", None) or getattr(value, "__wrapped__", value)


class _Namespace:
    """Attributes that code may reach by name: of a user class, a user module or a function."""

    def __init__(self, mapping: Mapping[str, Any], label: str, owner: Any) -> None:
        self.mapping, self.label, self.owner = mapping, label, owner
        self.extra: set[str] = set()
        self.done: set[str] = set()
        self.aliases: set[str] = set()
        self.computed = False
        self.constructible = False
        self.library = False


class _Outline(_keys.Encoder):
    """What objects look like to some depth: enough to put them into the same order in every process.

    Those that look alike and differ further down may change places, which can cost a look-up, never an answer.
    """

    depth = 0

    def cycle(self, distance: int) -> bytes:
        return b"^"

    def other(self, value: Any) -> bytes:
        name = name_of(value).encode()
        if self.depth > 3 or isinstance(value, type):
            return _keys.frame(b"n", name)
        self.depth += 1
        parts: list[Any] = [getattr(value, "__dict__", None)]
        if isinstance(value, types.FunctionType):
            cells = [cell_contents(cell) for cell in value.__closure__ or ()]
            parts = [_code.describe(value.__code__).digest, value.__defaults__, value.__kwdefaults__, cells]
        elif isinstance(value, functools.partial):
            parts = [value.func, value.args, value.keywords]
        elif isinstance(value, types.MethodType):
            parts = [value.__func__, value.__self__]
        elif isinstance(value, enum.Enum):
            parts = [value._name_]
        outline = _keys.frame(
            b"n", name, *(self.encode(dict(x) if type(x) is not dict and isinstance(x, Mapping) else x) for x in parts)
        )
        self.depth -= 1
        return outline


class Walk(_keys.Encoder):
    """One traversal. Everything that is reached becomes an ingredient under a label of its own."""

    def __init__(self, is_tensor: Test, is_layer: Test, skip: Test) -> None:
        super().__init__()
        self.is_tensor, self.is_layer, self.skip = is_tensor, is_layer, skip
        self.ingredients: dict[str, str] = {}
        self.opaque: list[str] = []
        self.externals: list[External] = []
        self.globals: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        self.cells: dict[int, tuple[types.CellType, Any]] = {}
        self.classes_read: dict[tuple[int, str], tuple[type, str, Any]] = {}
        self.functions: list[types.FunctionType] = []
        self.methods: set[int] = set()
        self.pending: deque[tuple[types.FunctionType, str]] = deque()
        self.labels: dict[int, tuple[Any, str]] = {}
        self.taken: dict[str, int] = {}
        self.spaces: dict[int, _Namespace] = {}
        self.used: set[str] = set()
        self.mentioned: set[str] = set()
        self.bare: set[str] = set()
        self.dynamic = False
        self.widened = False
        self.formats = False
        self.objects: dict[int, tuple[Any, bytes | None]] = {}
        self.place = ("argument", "the call", "")
        self.owner: type | None = None
        self.overridden: set[type] = set()
        self.library("python")

    # Roots and the fixed point

    def root(self, function: Any) -> None:
        label = self.unique(f"method {name_of(function)}")
        self.methods.add(id(function))
        self.ingredient(label, function, ("argument", label, "function"))

    def finish(self) -> None:
        """Follow code and names until neither gives anything new."""
        while True:
            while self.pending:
                self.function_body(*self.pending.popleft())
            if self.owner is not None and self.calls_itself(self.owner):
                self.entries(self.owner)
                self.owner = None
            for space in list(self.spaces.values()):
                self.names_of(space)
            if self.pending or any(self.wanted(space) for space in self.spaces.values()):
                continue
            if self.widened or not self.dynamic:
                return
            self.widened = True

    def calls_itself(self, owner: type) -> bool:
        """May the owner's ``forward`` be called, although no code that is reached names it?

        It may where ``self`` is used for anything but its attributes, or where a library's code is entered with it.
        """
        if not self.used.isdisjoint(("__call__", "_call_impl", "_wrapped_call_impl")):
            return True
        for function in self.functions:
            code = function.__code__
            # Wrapped methods are not found on a class: they are known by the custom of the name.
            if (id(function) in self.methods or code.co_varnames[:1] == ("self",)) and _code.escapes(code):
                return True
        return any(
            not self.used.isdisjoint(vars(base))
            for base in owner.__mro__[:-1]
            if _origin.of_object(base) and not _root(base)
        )

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

    def unique(self, label: str) -> str:
        count = self.taken[label] = self.taken.get(label, 0) + 1
        return label if count == 1 else f"{label} #{count}"

    def library(self, label: str) -> bytes:
        if label != _origin.USER:
            self.ingredients.setdefault(f"library {label}", _origin.version(label))
        return label.encode()

    # Code

    def function(self, function: types.FunctionType) -> bytes:
        """A reference to a function; the function itself is followed later."""
        known = self.labels.get(id(function))
        if known is not None:
            return _keys.frame(b"f", known[1].encode())
        library = _library_of(function)
        if library == "hybrid_infer":
            inner = _undecorated(function)
            if inner is not function:
                return self.encode(inner)
        if library and _COMPILED in function.__dict__:
            self.library(library)
            return self.parts(b"W", function.__dict__[_COMPILED])
        if library and "registry" in function.__dict__ and "dispatch" in function.__dict__:
            # functools.singledispatch: its cache fills as it is called.
            return self.parts(b"G", dict(function.__dict__["registry"]))
        if library and self.named_in_library(function):
            self.library(library)
            return _keys.frame(b"L", library.encode(), name_of(function).encode())
        label = self.unique(f"{'library function' if library else 'function'} {name_of(function)}")
        self.labels[id(function)] = (function, label)
        self.pending.append((function, label))
        return _keys.frame(b"f", label.encode())

    @staticmethod
    def named_in_library(function: types.FunctionType) -> bool:
        """Is it all the library's own, so that its version says everything?

        A wrapper that a library made around something else (``torch.no_grad()`` on a user's function) is not.
        """
        if function.__closure__ is None and "__wrapped__" not in function.__dict__:
            return True
        found: Any = sys.modules.get(function.__module__)
        for part in function.__qualname__.split("."):
            found = getattr(found, "__dict__", {}).get(part)
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        home = getattr(sys.modules.get(function.__module__), "__dict__", {})
        return (found is function or home.get(function.__name__) is function) and bool(
            _origin.of_module(function.__module__)
        )

    def function_body(self, function: types.FunctionType, label: str) -> None:
        library = _library_of(function)
        if library:
            self.library(library)
            self.ingredients[label] = _keys.digest(library)
        else:
            self.functions.append(function)
            self.code(function.__code__, function.__globals__, label)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            value = cell_contents(cell)
            self.cells[id(cell)] = (cell, value)
            if name == "__class__" and isinstance(value, type):
                # Only `super()` reads it: the class is looked up in, not called.
                self.user_class(value)
                continue
            self.ingredient(f"closure {name} of {label}", value, ("closure", label, name))
        if not library or function.__closure__:
            names = function.__code__.co_varnames[: function.__code__.co_argcount]
            for name, value in zip(reversed(names), reversed(function.__defaults__ or ()), strict=False):
                self.ingredient(f"default {name} of {label}", value, ("default", label, name))
            for name, value in (function.__kwdefaults__ or {}).items():
                self.ingredient(f"default {name} of {label}", value, ("default", label, name))
        if function.__dict__:
            self.space(function.__dict__, label, function).extra.add("__wrapped__")

    def code(self, code: types.CodeType, scope: dict[str, Any], label: str) -> None:
        info = _code.describe(code)
        self.ingredients[label] = info.digest.hex()
        self.used |= info.attributes
        self.bare |= info.bare
        self.dynamic |= info.dynamic or info.namespace
        self.formats |= info.formats or not {"repr", "str", "format", "ascii"}.isdisjoint(info.globals)
        if info.importer:
            self.opaque.append(f"{label}: it imports modules by computed names")
        home = str(scope.get("__name__", "?"))
        home = "__main__" if home == "__mp_main__" else home
        names = sorted({*info.globals, *_plain_names(scope, types.ModuleType)}) if info.namespace else info.globals
        self.mentioned.update(info.globals)
        for name in names:
            self.global_name(name, scope, home)
        for chain in info.computed:
            self.computed(chain, scope)
        for name, level in info.imports:
            self.imported(name, level, scope, label)

    def global_name(self, name: str, scope: dict[str, Any], home: str) -> None:
        if (id(scope), name) in self.globals:
            return
        value = scope.get(name, ABSENT)
        if value is ABSENT and hasattr(builtins, name):
            return
        self.globals[id(scope), name] = (scope, name, value)
        self.ingredient(self.unique(f"global {home}.{name}"), value, ("global", home, name))

    def imported(self, name: str, level: int, scope: dict[str, Any], label: str) -> None:
        """An import statement inside a function: what the function would import is reached."""
        if level:
            package = str(scope.get("__package__") or scope.get("__name__", "")).split(".")
            name = ".".join([*package[: len(package) - level + 1], *([name] if name else [])])
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            module = ".".join(parts[:count])
            if module not in sys.modules and _origin.of_file(self.spec_file(parts[0]), "") != _origin.USER:
                # Not loaded only to learn that it is a library: its version is on disk.
                self.library(_origin.of_file(self.spec_file(parts[0]), ""))
                return
            if module not in sys.modules and self.widened:
                # Perhaps never reached, so not imported for this: by what it says.
                self.ingredients[f"import {module} of {label}"] = _keys.hash_bytes(_content(self.spec_file(module)))
                return
            try:
                value = importlib.import_module(module)
            except Exception as error:
                self.ingredients[f"import {module} of {label}"] = f"fails: {type(error).__name__}"
                return
            self.ingredient(f"import {module} of {label}", value, ("import", label, module))

    @staticmethod
    def spec_file(top: str) -> str:
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            return ""
        if spec is None:
            return ""
        folders = spec.submodule_search_locations or ()
        return spec.origin if spec.has_location and spec.origin else next(iter(folders), "<frozen>")

    # Names on classes, modules and functions

    def space(self, mapping: Mapping[str, Any], label: str, owner: Any) -> _Namespace:
        space = self.spaces.get(id(owner))
        if space is None:
            space = self.spaces[id(owner)] = _Namespace(mapping, label, owner)
        return space

    def wanted(self, space: _Namespace) -> list[str]:
        mapping = space.mapping
        is_class = isinstance(space.owner, type)
        if space.library:
            names = set(mapping) if is_class else mapping.keys() & self.used
        elif space.computed or (self.widened and self.escapes(space)):
            names = {name for name in mapping if not _dunder(name)} if is_class else _plain_names(mapping)
            names |= mapping.keys() & self.used
        else:
            names = mapping.keys() & self.used
        names |= mapping.keys() & space.extra
        if is_class and not space.library:
            implicit = {name for name in mapping if _dunder(name)}
            if _COPYING.isdisjoint(self.used) and _COPYING.isdisjoint(self.mentioned):
                implicit -= _COPIERS
            if not self.formats:
                implicit -= _FORMATTERS
            names |= implicit
            if not space.constructible:
                names -= _CONSTRUCTORS
        if not space.library:
            names -= _NEVER - {"__annotations__"} if is_class and "__annotations__" in self.used else _NEVER
        return sorted(names - space.done)

    def escapes(self, space: _Namespace) -> bool:
        """May an attribute of this be looked up by a computed name, without being known by its own?"""
        return isinstance(space.owner, type) or "" in space.aliases or not space.aliases.isdisjoint(self.bare)

    def computed(self, chain: tuple[str, ...], scope: dict[str, Any]) -> None:
        """Attributes of a global, or of what stands behind it, are looked up by computed names."""
        value = scope.get(chain[0], ABSENT)
        for name in chain[1:]:
            value = vars(value).get(name, ABSENT) if isinstance(value, types.ModuleType) else ABSENT
        if isinstance(value, (types.ModuleType, type)):
            self.encode(value)
            for base in value.__mro__ if isinstance(value, type) else (value,):
                if id(base) in self.spaces:
                    self.spaces[id(base)].computed = True
        else:
            self.dynamic = True

    def names_of(self, space: _Namespace) -> None:
        for name in self.wanted(space):
            space.done.add(name)
            value = space.mapping.get(name, ABSENT)
            if space.library and not self.patched(value):
                continue
            if isinstance(space.owner, type):
                self.classes_read[id(space.owner), name] = (space.owner, name, value)
                self.methods.update(map(id, (value.fget, value.fset) if isinstance(value, property) else (value,)))
            else:
                self.globals[id(space.mapping), name] = (space.mapping, name, value)
            self.ingredient(f"attribute {name} of {space.label}", value, ("attribute", space.label, name))

    @staticmethod
    def patched(value: Any) -> bool:
        """Was this member of a library put there by the user?"""
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, property):
            value = value.fget
        return isinstance(value, types.FunctionType) and _library_of(value) == _origin.USER

    # Classes

    def layer_class(self, kind: type, *, entry: bool = True) -> None:
        """A class of the layer tree: its layers exist, and their ``forward`` is called unless `entry` is false."""
        self.ingredients.setdefault(f"layers {name_of(kind)}", _keys.hash_bytes(self.user_class(kind)))
        if entry:
            self.entries(kind)
        self.overrides(kind)

    def entries(self, kind: type) -> None:
        for base in kind.__mro__:
            if id(base) in self.spaces:
                self.spaces[id(base)].extra |= _ENTRIES

    def overrides(self, kind: type) -> None:
        """User methods that replace a library's: the library's code, which is not read, may call them."""
        if kind in self.overridden:
            return
        self.overridden.add(kind)
        names: set[str] = set()
        for base in reversed(kind.__mro__[:-1]):
            if _origin.of_object(base):
                if not _root(base):
                    names |= {name for name in vars(base) if not name.startswith("__")} - {"forward"}
            elif names and id(base) in self.spaces:
                self.spaces[id(base)].extra |= names

    def user_class(self, kind: type) -> bytes:
        """A reference to a class; for a user's class, and its bases, names are followed from now on."""
        known = self.labels.get(id(kind))
        if known is not None:
            return _keys.frame(b"c", known[1].encode())
        library = _origin.of_object(kind)
        if library:
            self.library(library)
            token = f"{library}: {name_of(kind)}"
            self.labels[id(kind)] = (kind, token)
            if kind.__module__.partition(".")[0] != "builtins":
                for base in kind.__mro__:
                    self.space(base.__dict__, name_of(base), base).library = bool(_origin.of_object(base))
            return _keys.frame(b"c", token.encode())
        label = self.unique(f"class {name_of(kind)}")
        self.labels[id(kind)] = (kind, label)
        bases = [self.user_class(base) for base in kind.__mro__[1:]]
        meta = type(kind)
        plain = meta.__module__ in _PLAIN_METACLASSES
        self.ingredients[label] = _keys.hash_bytes(_keys.frame(b"k", b"" if plain else self.user_class(meta), *bases))
        space = self.space(kind.__dict__, label, kind)
        if isinstance(kind, enum.EnumMeta):
            space.extra.add("_member_map_")
        return _keys.frame(b"c", label.encode())

    # Values

    def cycle(self, distance: int) -> bytes:
        return b"^" + distance.to_bytes(8, "little")

    def elements(self, values: Iterable[Any]) -> Iterable[Any]:
        values = list(values)
        if all(type(value) in _keys.LEAVES for value in values):
            return values
        # Labels are given in the order of the walk, and the order of a set is that of addresses.
        return sorted(values, key=lambda value: _Outline().encode(value))

    def external(self, value: Any) -> None:
        kind, holder, name = self.place
        self.externals.append(External(kind, holder, name + self.path, value))

    def other(self, value: Any) -> bytes:
        if self.skip(value):
            return b"-"
        if self.is_tensor(value):
            self.external(value)
            return b"="
        if self.is_layer(value):
            return self.layer(value)
        if value is ABSENT:
            return b"0"
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if isinstance(value, type):
            token = self.user_class(value)
            space = self.spaces.get(id(value))
            if space is not None:
                for base in value.__mro__:
                    if id(base) in self.spaces:
                        self.spaces[id(base)].constructible = True
                self.entries(value)
                self.overrides(value)
            return token
        known = self.objects.get(id(value))
        if known is not None:
            # An object met again inside itself is known by its place in the order of the walk.
            return known[1] or _keys.frame(b"@", str(list(self.objects).index(id(value))).encode())
        if len(self.objects) >= _MAX_OBJECTS:
            raise _keys.Unhashable(self.path, f"it reaches more than {_MAX_OBJECTS} objects")
        self.objects[id(value)] = (value, None)
        depth = len(self.trail)
        try:
            token = self.object(value)
        except _keys.Unhashable as error:
            # One opaque thing does not hide the next: the walk goes on behind it.
            self.note(error.what)
            token = b"?"
        except RecursionError:
            self.note("it is nested too deeply")
            token = b"?"
        del self.trail[depth:]
        self.objects[id(value)] = (value, token)
        return token

    def layer(self, value: Any) -> bytes:
        self.external(value)
        seen = {id(value)}
        stack = [value]
        while stack:
            layer = stack.pop()
            self.layer_class(type(layer))
            queue = list(vars(layer).values())
            while queue:
                item = queue.pop()
                if id(item) in seen or not (isinstance(item, (dict, list, tuple)) or self.is_layer(item)):
                    continue
                seen.add(id(item))
                if self.is_layer(item):
                    stack.append(item)
                else:
                    queue.extend(item.values() if isinstance(item, dict) else item)
        return _keys.frame(b"y", name_of(type(value)).encode())

    def object(self, value: Any) -> bytes:
        """Anything that is not plain data, a function, a class, a tensor or a layer."""
        kind = type(value)
        if isinstance(value, types.ModuleType):
            return self.module(value)
        if isinstance(value, types.MethodType):
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
            return self.parts(b"W", value.__wrapped__)
        if _origin.of_object(kind) == "hybrid_infer" and _undecorated(value) is not value:
            return self.parts(b"W", _undecorated(value), getattr(value, "__self__", None))
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
        if kind is weakref.ref:
            return self.parts(b"w", value())
        if isinstance(value, logging.Logger):
            # What it does with messages has no part in results, and its handlers hold files and locks.
            return self.parts(b"l", value.name)
        shown = f"{kind.__module__}.{kind.__qualname__}"
        if shown in _COMPILERS:
            return self.parts(b"W", getattr(value, _COMPILERS[shown], None) or value.__name__)
        if shown in _BY_REPR:
            self.library(_origin.of_object(kind))
            return self.parts(b"r", shown, repr(value))
        if kind is struct.Struct:
            return self.parts(b"s", value.format)
        if isinstance(value, enum.Enum):
            return self.parts(b"E", kind, value._name_, value._value_)
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

    def module(self, module: types.ModuleType) -> bytes:
        name = "__main__" if module.__name__ == "__mp_main__" else module.__name__
        library = _origin.of_module(module.__name__)
        if library:
            self.library(library)
        space = self.space(module.__dict__, f"module {name}", module)
        space.library = bool(library)
        if not library:
            space.extra.add("__getattr__")
        kind, _, under = self.place
        space.aliases.add(under if kind in ("global", "attribute") and not self.trail else "")
        return _keys.frame(b"X", library.encode(), name.encode())

    def instance(self, value: Any, kind: type) -> bytes:
        """An object by its class and state. Raises Unhashable if it has state that cannot be read."""
        parts = [self.user_class(kind)]
        self.entries(kind)
        self.overrides(kind)
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
                self.used.update(name for arg in reduced[1] if isinstance(arg, str) for name in arg.split("."))
            if foreign:
                return _keys.frame(b"R", *parts)
        state = getattr(value, "__dict__", None)
        if isinstance(state, dict):
            for name, item in list(state.items()):
                if name == "__doc__":
                    continue
                parts += (name.encode() if isinstance(name, str) else b"", self.at(f".{name}", item))
        for name, item in _state.slots(value, kind):
            parts += (name.encode(), self.at(f".{name}", item))
        return _keys.frame(b"I", *parts)


def _content(filename: str) -> bytes:
    try:
        with open(filename, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _plain_names(mapping: Mapping[str, Any], *others: type) -> set[str]:
    """Names of functions, classes and plain data: what code may fetch from a module by a computed name."""
    kinds = (types.FunctionType, type, functools.partial, *_PLAIN, *others)
    return {name for name, value in list(mapping.items()) if not _dunder(name) and isinstance(value, kinds)}
