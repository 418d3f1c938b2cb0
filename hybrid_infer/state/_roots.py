"""Layers and tensors that a function reaches outside its arguments, and a copy of it that reaches a twin's."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any

from hybrid_infer.fingerprint import _code
from hybrid_infer.objects import _state
from hybrid_infer.objects._state import cell_contents
from hybrid_infer.state import _census

_Function = types.FunctionType
_OURS = __name__.partition(".")[0]
#: What Python itself keeps in a module: the second is set by a warning.
_PYTHONS = frozenset({"__builtins__", "__warningregistry__"})


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def _references(function: _Function) -> Iterator[tuple[str, str, Any]]:
    """(kind, name, value) of every closure cell and global that the code of a function names."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield "closure", name, cell.cell_contents
        except ValueError:  # a cell that is not filled yet: a recursive function being defined
            continue
    # An attribute's name is no global's, though a code object lists them together.
    for name in sorted(_code.describe(function.__code__).globals):
        if name in function.__globals__:
            yield "global", name, function.__globals__[name]


def undecorated(value: Any) -> Any:
    """The function behind one that this library has wrapped."""
    kind = type(value)
    if kind not in (_Function, types.MethodType) and str(kind.__module__).partition(".")[0] != _OURS:
        return value  # an object of the program may have a __getattr__ of its own
    method = getattr(value, "__hybrid_infer__", None)
    return value if method is None else method.function


def _holds_state(value: Any, frontend: Any) -> bool:
    if isinstance(value, (frontend.tensor_type, frontend.layer_type)):
        return True
    if isinstance(value, (dict, list, tuple)) and len(_state.content(value)) <= 4096:
        census = _census.take({"value": value}, frontend)
        return bool(census.slots or census.layers)
    return False


def _is_program(function: Any, of: _Function) -> bool:
    """Does a helper belong to the user's program? Its module shares the top-level package of the function's."""
    if type(function) is not _Function:  # a mock says that it is one
        return False
    top = (function.__module__ or "").partition(".")[0]
    if top == (of.__module__ or "").partition(".")[0]:
        return True
    file = function.__code__.co_filename
    return "site-packages" not in file and "dist-packages" not in file and "/lib/python" not in file


def find(function: _Function, frontend: Any) -> dict[str, Any]:
    """Roots by name: layers, tensors and containers of them in closures and globals, helpers' included."""
    roots: dict[str, Any] = {}
    _find(function, frontend, roots, set())
    return roots


def _find(function: _Function, frontend: Any, roots: dict[str, Any], seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    for kind, name, value in _references(function):
        target = undecorated(value)
        if _holds_state(value, frontend):
            roots.setdefault(_name(function, kind, name), value)
        elif _is_program(target, function):
            _find(target, frontend, roots, seen)


def _name(function: _Function, kind: str, name: str) -> str:
    return f"{kind} {name} of {function.__module__}.{function.__qualname__}"


class Clones:
    """Copies of functions whose closure cells and globals name the twins of their roots.

    Only what has to differ is copied: a function that reaches no root, directly or through a helper, is itself.
    """

    def __init__(self, twins: Mapping[str, Any]) -> None:
        self._twins = twins
        self._made: dict[int, Any] = {}
        self._globals: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._cells: list[tuple[str, types.CellType, Any]] = []

    def of(self, function: _Function) -> Any:
        """The function, or a copy of it."""
        if id(function) in self._made:
            return self._made[id(function)]
        self._made[id(function)] = function  # what a recursive helper finds, unless a root makes a copy necessary
        cells: dict[str, Any] = {}
        names: dict[str, Any] = {}
        for kind, name, value in _references(function):
            target = undecorated(value)
            twin = self._twins.get(_name(function, kind, name))
            if twin is None and _is_program(target, function):
                copied = self.of(target)
                twin = copied if copied is not target else None
            if twin is not None:
                (cells if kind == "closure" else names)[name] = twin
        if not cells and not names:
            return function
        closure = tuple(
            types.CellType(cells[name]) if name in cells else cell
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        )
        named = zip(function.__code__.co_freevars, closure, strict=True)
        self._cells += [(name, cell, cells[name]) for name, cell in named if name in cells]
        scope = {**function.__globals__, **names}
        copy = _Function(function.__code__, scope, function.__name__, function.__defaults__, closure)
        copy.__kwdefaults__ = function.__kwdefaults__
        copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
        copy.__dict__.update(function.__dict__)
        self._made[id(function)] = copy
        self._globals.append((scope, dict(scope)))
        return copy

    def assigned(self) -> list[str]:
        """Globals that the copies have assigned: the originals would have assigned the program's."""
        found = []
        for scope, before in self._globals:
            found += [n for n, v in scope.items() if n not in _PYTHONS and (n not in before or before[n] is not v)]
        return list(dict.fromkeys(found))

    def nonlocals(self) -> list[str]:
        """Variables of enclosing functions that the copies have assigned."""
        return list(dict.fromkeys(name for name, cell, before in self._cells if cell_contents(cell) is not before))
