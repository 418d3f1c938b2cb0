"""Classes and modules: which of their names count, given all that code mentions."""

from __future__ import annotations

import contextlib
import enum
import logging
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hybrid_infer import _keys
from hybrid_infer.fingerprint import _code
from hybrid_infer.fingerprint._namespaces import ENTRIES, Namespace
from hybrid_infer.fingerprint._objects import Objects, library_of, made_at_run_time, undecorated
from hybrid_infer.objects import _origin
from hybrid_infer.objects._state import ABSENT, name_of

#: Root classes of the frameworks' layers: a user method that replaces one of theirs is not thereby called in forward.
_ROOTS = frozenset({("torch.nn.modules.module", "Module"), ("paddle.nn.layer.layers", "Layer")})
_OF_LOGGERS = frozenset(vars(logging.Logger("")))
_PLAIN_METACLASSES = frozenset({"builtins", "abc", "enum", "typing"})


def is_root(kind: type) -> bool:
    return (getattr(kind, "__module__", ""), kind.__qualname__) in _ROOTS


class Classes(Objects):
    """Follows names into classes, modules and the attributes of functions."""

    def __init__(self) -> None:
        super().__init__()
        self.globals: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        self.classes_read: dict[tuple[int, str], tuple[type, str, Any]] = {}
        self.methods: set[int] = set()
        self.labels: dict[int, tuple[Any, str]] = {}
        self.taken: dict[str, int] = {}
        self.spaces: dict[int, Namespace] = {}
        self.dynamic = False
        self.makers: set[type] = set()  # classes with class methods that may call what they are given
        self.mentioned_by: Callable[[Any], frozenset[str]] = lambda function: frozenset()
        self.overridden: set[type] = set()
        self.bound: tuple[type, str, Any] | None = None  # see `methods_of`

    def unique(self, label: str) -> str:
        count = self.taken[label] = self.taken.get(label, 0) + 1
        return label if count == 1 else f"{label} #{count}"

    def space(self, mapping: Mapping[str, Any], label: str, owner: Any) -> Namespace:
        space = self.spaces.get(id(owner))
        if space is None:
            space = self.spaces[id(owner)] = Namespace(mapping, label, owner)
            if isinstance(owner, type):
                self.mentions.classes.add(owner)
        return space

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

    def names_of(self, space: Namespace) -> None:
        for name in space.wanted(self.mentions):
            space.done.add(name)
            value = space.mapping.get(name, ABSENT)
            if space.functions_of_objects:  # what they hold, a trace tells
                self.mentions.used.update(*map(self.mentioned_by, value))
                continue
            if space.library and not self.patched(value):
                continue
            if isinstance(space.owner, type):
                if isinstance(value, classmethod) and _calls_its_class(undecorated(value.__func__)):
                    self.makers.add(space.owner)
                self.classes_read[id(space.owner), name] = (space.owner, name, value)
                self.methods.update(map(id, (value.fget, value.fset) if isinstance(value, property) else (value,)))
            else:
                self.globals[id(space.mapping), name] = (space.mapping, name, value)
            with self.methods_of(space.owner, name, value):
                self.ingredient(f"attribute {name} of {space.label}", value, ("attribute", space.label, name))

    @contextlib.contextmanager
    def methods_of(self, owner: Any, name: str, value: Any) -> Iterator[None]:
        """Inside, `value` is encoded, which is a method of the class `owner`, or holds it: a property, a wrapper."""
        before, self.bound = self.bound, None
        if isinstance(owner, type):  # a module may compute what it is asked for
            named = "" if isinstance(value, (staticmethod, classmethod)) else f"{owner.__qualname__}.{name}"
            self.bound = owner, named, value
        try:
            yield
        finally:
            self.bound = before

    def referred(self, function: types.FunctionType) -> None:
        """Take over the names that a function computes for attributes of its ``self``, whoever that is.

        A function that is referred to by anything but a class may be called with any object.
        """
        code = _code.describe(function.__code__)
        kind = None
        if self.bound is not None and (function is self.bound[2] or function.__qualname__ == self.bound[1]):
            kind = self.bound[0]
        if kind is None:
            self.dynamic |= code.self_dict  # `self` may be a class, or a module
        elif issubclass(kind, type):
            self.dynamic |= code.self_dict or bool(code.on_self)
        if code.on_self:
            self.mentions.on_self.setdefault(kind, set()).update(code.on_self)

    @staticmethod
    def patched(value: Any) -> bool:
        """Was this member of a library put there by the user?"""
        # By type, since `isinstance` reads `__class__`, of which a member may warn.
        if issubclass(type(value), (staticmethod, classmethod)):
            value = value.__func__
        if issubclass(type(value), property):
            value = value.fget
        return type(value) is types.FunctionType and library_of(value) == _origin.USER

    def layer_class(self, kind: type, *, entry: bool = True) -> None:
        """A class of the layer tree: its layers exist, and their ``forward`` is called unless `entry` is false."""
        self.ingredients.setdefault(f"layers {name_of(kind)}", _keys.hash_bytes(self.user_class(kind)))
        if entry:
            self.entries(kind)
        self.overrides(kind)

    def entries(self, kind: type) -> None:
        for base in kind.__mro__:
            if id(base) in self.spaces:
                self.spaces[id(base)].extra |= ENTRIES

    def overrides(self, kind: type) -> None:
        """User methods that replace a library's: the library's code, which is not read, may call them."""
        if kind in self.overridden:
            return
        self.overridden.add(kind)
        names: set[str] = set()
        for base in reversed(kind.__mro__[:-1]):
            if _origin.of_object(base):
                if not is_root(base):
                    names |= {name for name in vars(base) if not name.startswith("__")} - {"forward"}
            elif names and id(base) in self.spaces:
                self.spaces[id(base)].extra |= names

    def made(self, kind: type) -> None:
        """Code may make objects of a class."""
        for base in kind.__mro__:
            if id(base) in self.spaces:
                self.spaces[id(base)].constructible = True

    def entered(self, kind: type) -> None:
        self.entries(kind)
        self.overrides(kind)

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
            # A class made in C may lack even that: Paddle's PyLayer.
            if str(getattr(kind, "__module__", "")).partition(".")[0] != "builtins":
                for base in kind.__mro__:
                    space = self.space(base.__dict__, name_of(base), base)
                    space.library = bool(_origin.of_object(base)) and not made_at_run_time(base)
                    if made_at_run_time(base):
                        space.extra |= {name for name, held in vars(base).items() if callable(held) or name[:2] != "__"}
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
            if issubclass(kind, enum.Flag):
                space.done.add("_value2member_map_")  # a cache of the combinations that were asked for
        return _keys.frame(b"c", label.encode())

    def named_logger(self, logger: logging.Logger) -> None:
        space = self.space(vars(logger), f"logger {logger.name}", logger)
        space.done |= _OF_LOGGERS

    def module(self, module: types.ModuleType) -> bytes:
        name = _origin.in_every_process(module.__name__)
        library = _origin.of_module(module.__name__)
        if library:
            self.library(library)
        space = self.space(module.__dict__, f"module {name}", module)
        space.library = bool(library)
        if not library:
            space.extra.add("__getattr__")
        kind, _, under = self.place
        space.aliases.add(under if kind in ("global", "attribute", "from") and not self.trail else "")
        return _keys.frame(b"X", library.encode(), name.encode())


def _calls_its_class(function: Any) -> bool:
    """Does a class method use its class for anything but its attributes?"""
    return not isinstance(function, types.FunctionType) or _code.escapes(function.__code__)
