"""What is decorated in what ``explain()`` was given: methods, where they are, and their states."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Sequence
from typing import Any

from hybrid_infer import _frontends
from hybrid_infer._dispatch import State
from hybrid_infer._method import HotMethod
from hybrid_infer.state import _census
from hybrid_infer.static import _saved_target


def found(target: Any) -> Iterator[tuple[str, HotMethod, State | None]]:
    """Each decorated method that `target` is or holds: where it is, and its state where it was called."""
    hot = getattr(target, "__hybrid_infer__", None)
    if isinstance(hot, HotMethod):
        owner = getattr(target, "__self__", None)
        states = _states(hot, owner)
        yield from (("", state.method, state) for state in states)
        if not states:
            yield "", hot, None
        return
    if isinstance(target, type):
        behind = _behind(target)
        for name in dir(target):
            hot = getattr(getattr(target, name, None), "__hybrid_infer__", behind.get(name, (None,))[0])
            if isinstance(hot, HotMethod):
                states = _states(hot, None)
                yield from ((name, state.method, state) for state in states)
                if not states:
                    yield name, hot, None
        return
    if isinstance(target, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
        return
    frontend = _frontends.of(target)
    layers: Sequence[Any] = [((), target)]
    if frontend is not None:
        layers = [(path[1:], layer) for path, layer in _census.take({"layer": target}, frontend).layers]
    for path, layer in layers:
        if hasattr(layer, "__dict__"):
            methods: list[tuple[str, HotMethod, Any]]
            methods = [(name, method, layer) for name, method in _saved_target.decorated(layer)]
            methods += [(name, hot, layer if owned else None) for name, (hot, owned) in _behind(type(layer)).items()]
            for name, method, owner in methods:
                states = _states(method, owner)
                yield ".".join((*map(str, path), name)), method, states[0] if states else None


def _states(method: HotMethod, owner: Any) -> list[State]:
    if owner is not None:
        found = method.owned.states.get(id(owner))
        return [found[1]] if found is not None and found[0]() is owner else []
    forms = [method] if method.as_static is None else [method, method.as_static]
    alone = [each.sole for each in forms if each.sole is not None]
    return [state for reference, state in list(method.owned.states.values()) if reference() is not None] + alone


def _behind(kind: type) -> dict[str, tuple[HotMethod, bool]]:
    """Decorated functions behind what is no method: of properties, with an instance, and static methods, without."""
    found: dict[str, tuple[HotMethod, bool]] = {}
    for name, value in ((name, value) for each in reversed(kind.__mro__) for name, value in vars(each).items()):
        function, owned = value, True
        if isinstance(value, staticmethod):
            function, owned = value.__func__, False
        elif isinstance(value, property):
            function = value.fget
        elif isinstance(value, functools.cached_property):
            function = value.func
        hot = None if function is value else getattr(function, "__hybrid_infer__", None)
        found.pop(name, None)
        if isinstance(hot, HotMethod):
            found[name] = hot.owned if owned else hot, owned
    return found
