"""The walk behind a fingerprint: from code to names, from names to values and classes, and back to code."""

from __future__ import annotations

import builtins
import importlib
import inspect
import operator
import sys
import types
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from hybrid_infer import _keys
from hybrid_infer.fingerprint import _code
from hybrid_infer.fingerprint._classes import Classes, is_root
from hybrid_infer.fingerprint._namespaces import data_names
from hybrid_infer.fingerprint._objects import library_of, made_at_run_time, undecorated
from hybrid_infer.fingerprint._outline import Outline
from hybrid_infer.objects import _origin
from hybrid_infer.objects._state import ABSENT, cell_contents, elements, module_name, name_of

Test = Callable[[Any], bool]

#: Where torch's compiler keeps the user's function.
_COMPILED = "_torchdynamo_orig_callable"
#: What asks a logger whether it would write a message; else its level has no part in results.
_LEVELS = frozenset({"isEnabledFor", "getEffectiveLevel"})
#: What reaches attributes by names that no code holds. Code that calls one by its own name is seen to do so; an object
#: that is one of them under another name is met here.
_READERS = frozenset(map(id, (getattr, vars, dir, inspect.getattr_static, operator.attrgetter, operator.methodcaller)))
#: By which code looks into functions, beside what it may learn of their parameters.
_LOOKS_INTO = frozenset(
    {"__closure__", "getsource", "getsourcelines", "getclosurevars", "co_code", "co_consts", "co_names", "co_freevars"}
)
#: What of its code object says no more than that. Its other attributes say more, and so does the object as a whole.
_PARAMETERS = frozenset({"co_varnames", "co_argcount", "co_kwonlyargcount", "co_posonlyargcount", "co_flags"})
_MAX_OBJECTS = 100_000
#: Bytes that stand for an object in those that hold it: one that many hold, which many hold, would take ever more.
_LONGEST = 256
#: Functions that the names in a method's code lead to, from which on only those count that have run (see `_ran`).
MANY = 400


class Walk(Classes):
    """One traversal."""

    def __init__(self, is_tensor: Test, is_layer: Test, skip: Test, among: Collection[str] | None = None) -> None:
        super().__init__()
        self.is_tensor, self.is_layer, self.skip, self.among = is_tensor, is_layer, skip, among
        self.cells: dict[int, tuple[types.CellType, Any]] = {}
        self.functions: list[types.FunctionType] = []
        self.unfollowed: list[tuple[types.FunctionType, str]] = []
        self.opened: set[str] = set()  # the labels of those of them that code may look into
        self.wrappers: set[str] = set()  # marks of what libraries have put around functions
        self.pending: deque[tuple[types.FunctionType, str]] = deque()
        self.objects: dict[int, tuple[Any, bytes | None]] = {}
        self.owner: type | None = None
        self.builtins: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}
        self.library("python")

    # Roots and the fixed point

    def root(self, function: Any) -> None:
        label = self.unique(f"method {name_of(function)}")
        self.methods.add(id(function))
        home = home_of(function) if isinstance(function, types.FunctionType) else None
        with self.methods_of(home, "", function):
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
            if self.pending or any(space.wanted(self.mentions) for space in self.spaces.values()):
                continue
            if self.dynamic and not self.mentions.widened:
                self.mentions.widened = True
            elif not self.looked_into() and not self.looked_up() and not self.made_again():
                break
        if _LEVELS.isdisjoint(self.mentions.used):
            self.loggers.clear()
        for name, logger in self.loggers.items():
            self.ingredients[f"level of logger {name}"] = str(logger.getEffectiveLevel())

    def calls_itself(self, owner: type) -> bool:
        """May the owner's ``forward`` be called, although no code that is reached names it?

        It may where ``self`` is used for anything but its attributes, or where a library's code is entered with it.
        """
        if not self.mentions.used.isdisjoint(("__call__", "_call_impl", "_wrapped_call_impl")):
            return True
        for function in self.functions:
            code = function.__code__
            # Wrapped methods are not found on a class: they are known by the custom of the name.
            if (id(function) in self.methods or code.co_varnames[:1] == ("self",)) and _code.escapes(code):
                return True
        return any(
            not self.mentions.used.isdisjoint(vars(base))
            for base in owner.__mro__[:-1]
            if _origin.of_object(base) and not is_root(base)
        )

    # Code

    def function(self, function: types.FunctionType) -> bytes:
        """A reference to a function; the function itself is followed later."""
        if self.follows(function.__code__):
            self.referred(function)
        known = self.labels.get(id(function))
        if known is not None:
            return _keys.frame(b"f", known[1].encode())
        library = library_of(function)
        if library == "hybrid_infer":
            inner = undecorated(function)
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
        kind = "function" if not library else "wrapper of" if "__wrapped__" in function.__dict__ else "library function"
        label = self.unique(f"{kind} {name_of(function)}")
        self.labels[id(function)] = (function, label)
        self.pending.append((function, label))
        return _keys.frame(b"f", label.encode())

    @staticmethod
    def named_in_library(function: types.FunctionType) -> bool:
        """Is it all the library's own, so that its version says everything?

        A wrapper that a library made around something else (``torch.no_grad()`` on a user's function) is not, nor are
        lambdas and what a function of it makes at each call: others go by the same name.
        """
        own = not made_at_run_time(function)
        if own and function.__closure__ is None and "__wrapped__" not in function.__dict__:
            return True
        found = behind(function.__module__, function.__qualname__.split("."))
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        home = getattr(sys.modules.get(function.__module__), "__dict__", {})
        return (found is function or home.get(function.__name__) is function) and bool(
            _origin.of_module(function.__module__)
        )

    def function_body(self, function: types.FunctionType, label: str) -> None:
        library = library_of(function)
        followed = self.follows(function.__code__)
        if library:
            self.library(library)
            self.ingredients[label] = _keys.digest((library, _code.mark(function.__code__)))
            self.wrappers.add(_code.mark(function.__code__))
        else:
            self.functions.append(function)
            if followed:
                self.code(function.__code__, function.__globals__, label)
            else:  # where it leads to, nothing has gone
                self.ingredients[label] = _keys.digest(_code.parameters(function.__code__))
                self.unfollowed.append((function, label))
                self.defaults(function, label)
        if function.__dict__:
            self.space(function.__dict__, label, function).extra.add("__wrapped__")
        if followed:
            self.cells_of(function, label)
            self.defaults(function, label)

    def looked_into(self) -> bool:
        """Count more of functions that no code has run, where the code that has may look into them; was there any?"""
        names = self.mentions.used | self.mentions.mentioned
        asked = "__code__" in names
        more = {name for name in names if name.startswith("co_")} - _PARAMETERS
        whole = "__code__" in self.mentions.bare or _PARAMETERS.isdisjoint(names)
        if not _LOOKS_INTO.isdisjoint(names) or (asked and (more or whole)):
            left = [(function, label) for function, label in self.unfollowed if label not in self.opened]
            for function, label in left:
                self.opened.add(label)
                self.ingredients[label] = _code.describe(function.__code__).digest.hex()
                self.cells_of(function, label)
            return bool(left)
        if asked and "co_varnames" in names:
            for function, label in self.unfollowed:
                self.ingredients[f"variables of {label}"] = _keys.digest(function.__code__.co_varnames)
        return False

    def looked_up(self) -> bool:
        """Count what objects say about themselves, where code looks at that; was there any?"""
        left, self.documents = (self.documents, []) if "__doc__" in self.mentions.used else ([], self.documents)
        for label, held in left:
            self.ingredient(self.unique(f"docstring of {label}"), held, ("attribute", label, "__doc__"))
        return bool(left)

    def made_again(self) -> bool:
        """Count how objects are made of classes that code may call by no name of theirs; was there any?

        As a class method calls what it is given, which may be any class below its own, and others ``x.__class__``.
        """
        anything = "__class__" in self.mentions.bare
        kinds = [each for each in self.mentions.classes if id(each) in self.spaces and not _origin.of_object(each)]
        left = [each for each in kinds if not self.spaces[id(each)].constructible]
        for kind in (found := [each for each in left if anything or issubclass(each, tuple(self.makers))]):
            self.made(kind)
        return bool(found)

    def cells_of(self, function: types.FunctionType, label: str) -> None:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            value = cell_contents(cell)
            self.cells[id(cell)] = (cell, value)
            if name == "__class__" and isinstance(value, type):
                # Only `super()` reads it: the class is looked up in, not called.
                self.user_class(value)
                continue
            self.ingredient(f"closure {name} of {label}", value, ("closure", label, name))

    def defaults(self, function: types.FunctionType, label: str) -> None:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        for name, value in zip(reversed(names), reversed(function.__defaults__ or ()), strict=False):
            self.ingredient(f"default {name} of {label}", value, ("default", label, name))
        for name, value in (function.__kwdefaults__ or {}).items():
            self.ingredient(f"default {name} of {label}", value, ("default", label, name))

    def follows(self, code: types.CodeType) -> bool:
        return self.among is None or _code.mark(code) in self.among

    def code(self, code: types.CodeType, scope: dict[str, Any], label: str) -> None:
        info = _code.describe(code)
        self.ingredients[label] = info.digest.hex()
        self.mentions.used |= info.attributes
        self.mentions.bare |= info.bare
        self.dynamic |= info.dynamic or info.namespace
        self.mentions.makes_classes |= info.makes_classes
        self.mentions.formats |= info.formats or not {"repr", "str", "format", "ascii"}.isdisjoint(info.globals)
        if info.importer:
            self.opaque.append(f"{label}: it imports modules by computed names")
        home = module_name(scope)
        names = sorted({*info.globals, *data_names(scope, modules=True)}) if info.namespace else info.globals
        self.mentions.mentioned.update(info.globals)
        for name in names:
            self.global_name(name, scope, home)
        for chain in info.computed:
            self.computed(chain, scope)
        for name, level, taken in info.imports:
            self.imported(name, level, taken, scope, label)

    def global_name(self, name: str, scope: dict[str, Any], home: str) -> None:
        if (id(scope), name) in self.globals:
            return
        value = scope.get(name, ABSENT)
        if value is ABSENT and hasattr(builtins, name):
            self.builtins[id(scope), name] = (scope, name)
            value = getattr(builtins, name)
            if not _pythons_own(value) and (id(vars(builtins)), name) not in self.globals:
                self.globals[id(vars(builtins)), name] = (vars(builtins), name, value)
                self.ingredient(self.unique(f"builtin {name}"), value, ("global", "builtins", name))
            return
        self.globals[id(scope), name] = (scope, name, value)
        self.ingredient(self.unique(f"global {home}.{name}"), value, ("global", home, name))

    def imported(
        self, name: str, level: int, names: tuple[str, ...] | None, scope: dict[str, Any], label: str
    ) -> None:  # fmt: skip
        """An import statement inside a function: what the function would import is reached.

        `names` are those that it takes from a module, of which some may be modules below it.
        """
        if level:
            package = str(scope.get("__package__") or scope.get("__name__", "")).split(".")
            name = ".".join([*package[: len(package) - level + 1], *([name] if name else [])])
        parts = name.split(".")
        library = _origin.of_import(parts)
        self.library(library)
        for count in range(1, len(parts) + 1):
            module = ".".join(parts[:count])
            found = sys.modules.get(module)
            place = ("import", label, module) if names is None else ("from", label, parts[count - 1])
            if library and (module not in sys.modules or (found is not None and _origin.of_object(found))):
                # Not loaded only to learn that it is a library, and the same where it is: its version says all but
                # what the program has put there.
                if isinstance(found, types.ModuleType):
                    self.library_module(found, place)
                continue
            if module not in sys.modules and not self.runs_imports():
                self.ingredients[f"import {module} of {label}"] = _keys.hash_bytes(_content(_origin.file_of(module)))
                return
            try:
                value = importlib.import_module(module)
                if names and count == len(parts) and self.runs_imports():
                    __import__(module, fromlist=names)
            except Exception as error:
                self.ingredients[f"import {module} of {label}"] = f"fails: {type(error).__name__}"
                return
            self.globals[id(sys.modules), module] = sys.modules, module, value
            self.ingredient(f"import {module} of {label}", value, place)

    def runs_imports(self) -> bool:
        """Is what code imports imported for this? Where most of it is perhaps never reached, it counts by its file.

        Where only code is followed that has run, it is, so that a key is the same before and after.
        """
        return self.among is not None or not (self.mentions.widened or len(self.functions) > MANY)

    def library_module(self, module: types.ModuleType, place: tuple[str, str, str]) -> None:
        """Follow names into a module of a library, which is no ingredient and no object that others are told by."""
        outer, self.place = self.place, place
        trail, self.trail = self.trail, []
        label = f"library {_origin.of_module(module.__name__)}"
        known = label in self.ingredients
        try:
            self.module(module)
        finally:
            self.place, self.trail = outer, trail
            if not known:  # a namespace, of which nobody knows before it is loaded
                self.ingredients.pop(label, None)

    # Values

    def cycle(self, distance: int) -> bytes:
        return b"^" + distance.to_bytes(8, "little")

    def elements(self, values: Iterable[Any]) -> Iterable[Any]:
        values = list(values)
        if all(type(value) in _keys.LEAVES for value in values):
            return values
        # Labels are given in the order of the walk, and the order of a set is that of addresses.
        return sorted(values, key=lambda value: Outline().encode(value))

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
        self.dynamic |= id(value) in _READERS
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if isinstance(value, type):
            token = self.user_class(value)
            if id(value) in self.spaces:
                self.made(value)
                self.entered(value)
            return token
        known = self.objects.get(id(value))
        if known is not None and isinstance(value, types.ModuleType):
            self.module(value)  # under another name, by which it may be handed to where names are computed
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
            self.note(_keys.TOO_DEEP)
            token = b"?"
        del self.trail[depth:]
        if len(token) > _LONGEST:
            token = _keys.frame(b"#", _keys.hash_bytes(token).encode())
        self.objects[id(value)] = (value, token)
        return token

    def layer(self, value: Any) -> bytes:
        self.external(value)
        for layer in layers_of(value, self.is_layer):
            self.layer_class(type(layer))
        return _keys.frame(b"y", name_of(type(value)).encode())


def layers_of(value: Any, is_layer: Test) -> Iterator[Any]:
    """A layer, and those that it holds, in containers too."""
    seen = {id(value)}
    stack = [value]
    while stack:
        layer = stack.pop()
        yield layer
        queue = list(vars(layer).values())
        while queue:
            item = queue.pop()
            if id(item) in seen or not (isinstance(item, (dict, list, tuple)) or is_layer(item)):
                continue
            seen.add(id(item))
            if is_layer(item):
                stack.append(item)
            else:
                queue.extend(elements(item))


def _content(filename: str) -> bytes:
    try:
        with open(filename, "rb") as file:
            return file.read()
    except OSError:
        return b""


def behind(module: str, names: Iterable[str]) -> Any:
    """What stands in a module under a name, or a chain of them; None where there is nothing."""
    found: Any = sys.modules.get(module)
    for name in names:
        found = getattr(found, "__dict__", {}).get(name)
    return found


def _pythons_own(value: Any) -> bool:
    """Is what the builtins hold there from the start?"""
    if isinstance(value, types.BuiltinFunctionType) or value is ... or value is NotImplemented:
        return True
    return {getattr(value, "__module__", None), type(value).__module__} <= {"builtins", "_sitebuiltins"}


def home_of(function: types.FunctionType) -> type | None:
    """The class that has a function as a method of its own; None where that cannot be told."""
    *parts, name = function.__qualname__.split(".")
    found = behind(function.__module__, parts)
    return found if isinstance(found, type) and undecorated(vars(found).get(name)) is function else None
