"""What a method that is traced finds as eager code does: the mode, classes of tensors, caches, and ``PyLayer``.

Where it cannot be traced with what the mode is eagerly, it is with the framework's own answers (see `Mode`).
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paddle

from hybrid_infer._own_thread import exchanged
from hybrid_infer.frontends._paddle_watch import is_number

#: The names of functions that tell the mode.
MODES = frozenset({"in_dynamic_mode", "in_dygraph_mode", "in_pir_mode", "in_to_static_mode"})


class Mode:
    """What functions that tell the mode say while a method is traced: as they do eagerly, or of the trace itself."""

    def __init__(self, eager: bool) -> None:
        self.asked = False
        self._eager = eager

    def told(self, function: Any) -> Callable[[], bool] | None:
        """What stands for a function that tells the mode; None for all others, and where it tells that of the trace."""
        answer = _answers().get(function) if isinstance(function, types.FunctionType) else None
        if answer is None or not self._eager:
            return None
        self.asked = True
        return lambda: answer


@functools.cache
def _answers() -> dict[Any, bool]:
    from paddle.base import framework
    from paddle.base.dygraph import base

    found = {framework.in_dygraph_mode: True, framework.in_pir_mode: False, base.in_to_static_mode: False}
    return {paddle.in_dynamic_mode: True, **found}


def is_instance(value: Any, kinds: Any) -> bool:
    """``isinstance``: what stands for a tensor is an instance of what a tensor is, and of a size, of what a number is.
    """
    if isinstance(value, kinds):
        return True
    return isinstance(value, paddle.pir.Value) and issubclass(_class(value), kinds)


def _class(value: Any) -> type[Any]:
    return int if is_number(value) else paddle.Tensor


def _type(function: Any, value: Any) -> Any:
    """``type(value)``, where `function` is what the code has by that name."""
    traced = function is type and isinstance(value, paddle.pir.Value)
    return _class(value) if traced else function(value)


#: No function, which the framework would rewrite; nor does `_paddle_source` rewrite what is in this partial.
TYPE = functools.partial(_type)


def is_the_programs(depth: int) -> bool:
    """Is the caller, so many calls above, code of the program's? The framework's means the mode that it runs in."""
    module = str(sys._getframe(depth + 1).f_globals.get("__name__") or "")
    return module.partition(".")[0] != "paddle"


def uncached(function: Any) -> Any:
    """What ``functools.lru_cache`` wraps, of what it makes of that; None of anything else.

    A cache answers with tensors that the trace does not know, and would keep values of the program.
    """
    if type(function) is _CACHED:
        return function.__wrapped__
    if inspect.ismethod(function) and type(function.__func__) is _CACHED:
        return types.MethodType(function.__func__.__wrapped__, function.__self__)
    return None


_CACHED = type(functools.lru_cache(is_instance))


def forward_of(function: Any) -> Any:
    """The forward function of a ``PyLayer``, with what that keeps for a backward one, of its ``apply``; else None.

    Of the framework's ``apply``, which is compiled: one of the program's own, in Python, is code like any other.
    """
    owner: Any = getattr(function, "__self__", None)
    applied = inspect.isbuiltin(function) and function.__name__ == "apply" and inspect.isclass(owner)
    if not applied or not issubclass(owner, paddle.autograd.PyLayer):
        return None
    return functools.partial(owner.forward, paddle.autograd.PyLayerContext())


@contextmanager
def forwards_alone() -> Iterator[None]:
    """On this thread, a ``PyLayer`` by its name is itself, where the framework has an operator made of it."""
    flow: Any = sys.modules["paddle.jit.dy2static.convert_operators"]
    made, thread = flow.StaticPyLayer, threading.get_ident()
    with exchanged((flow, "StaticPyLayer", lambda kind: kind if threading.get_ident() == thread else made(kind))):
        yield
