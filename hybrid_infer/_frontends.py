"""Which framework a value, an object or a function is of. None is imported for the question."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import sys
from collections import deque
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from hybrid_infer import _compilers

_log = logging.getLogger("hybrid_infer")


def of(value: Any) -> Any:
    """The frontend of a layer or tensor; None if it is of no framework known here. Imports no framework."""
    for name in ("torch", "paddle"):
        if name in sys.modules:
            frontend = _frontend(name)
            if frontend is not None and isinstance(value, (frontend.layer_type, frontend.tensor_type)):
                return frontend
    return None


_FRONTENDS: dict[str, Any] = {}


def _frontend(name: str) -> Any:
    """That of a framework which is imported; None while another thread is importing it."""
    found = _FRONTENDS.get(name)
    if found is None:
        found = _FRONTENDS[name] = _whole(name)
    return found


def _whole(name: str) -> Any:
    module = sys.modules[name]
    if name == "torch":
        _compilers.look()
    spec = getattr(module, "__spec__", None)
    if getattr(spec, "_initializing", False) or not hasattr(module, "nn"):
        return None
    if name == "torch":
        from hybrid_infer.frontends.torch import FRONTEND as torch_frontend

        return torch_frontend
    from hybrid_infer.frontends.paddle import FRONTEND as paddle_frontend

    return paddle_frontend


def imported(name: str) -> Any:
    """The frontend of "torch" or "paddle" if the program has imported it, else None."""
    return _frontend(name) if name in sys.modules else None


def holds_layers(value: Any) -> bool:
    """Is a value a layer, or an object with one among its attributes, or in a list, tuple or dict of them?"""
    if _is_layer(type(value)):
        return True
    try:
        held = getattr(value, "__dict__", None)
    except Exception as odd:  # of a class that answers that itself
        _log.debug("what a %s holds is not known: %s", type(value).__qualname__, odd)
        return False
    return isinstance(held, dict) and any(map(_has_layer, [*held.values()]))


def _has_layer(value: Any) -> bool:
    """Is it a layer, or a list, tuple or dict with one?"""
    inside = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
    return _is_layer(type(value)) or any(map(_is_layer, map(type, [*inside])))


def _is_layer(kind: type) -> bool:
    """Asked of classes, not of objects, which may answer whatever they are asked with an error."""
    frontends = (_frontend(name) for name in ("torch", "paddle") if name in sys.modules)
    return any(frontend is not None and issubclass(kind, frontend.layer_type) for frontend in frontends)


def of_values(values: Any, tell: Callable[[Any], Any] = of) -> Any:
    """The frontend of the first tensor among some values, nested ones included; `tell` gives that of one."""
    for value in values:
        found = tell(value)
        if found is None and isinstance(value, (dict, MappingProxyType)):
            found = of_values(value.values(), tell)
        elif found is None and isinstance(value, (list, tuple, deque)):
            found = of_values(value, tell)
        elif found is None and not isinstance(value, type) and dataclasses.is_dataclass(value):
            found = of_values((getattr(value, f.name) for f in dataclasses.fields(value)), tell)
        if found is not None:
            return found
    return None


def of_state(function: Any, owner: Any) -> Any:
    """The frontend of the first layer or tensor that an object holds or a function reaches."""
    from hybrid_infer.state import _census, _roots

    for name in ("torch", "paddle"):
        frontend = _frontend(name) if name in sys.modules else None
        if frontend is None:
            continue
        roots = _roots.find(function, frontend)
        if owner is not None:
            roots["self"] = owner
        census = _census.take(roots, frontend)
        if census.layers or census.slots:
            return frontend
    return None


def only(function: Any) -> Any:
    """The frontend of the framework whose module a function names, else of the only one that is imported."""
    named = {value.__name__.partition(".")[0] for value in function.__globals__.values() if inspect.ismodule(value)}
    names = [name for name in ("torch", "paddle") if name in sys.modules]
    chosen = [name for name in names if name in named] or names
    return _frontend(chosen[0]) if len(chosen) == 1 else None
