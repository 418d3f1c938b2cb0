"""Paddle's own static path, for training: ``paddle.jit.to_static`` on a function, or on a method per instance."""

from __future__ import annotations

import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any

import paddle


def static_path(function: Any, strategy: Any) -> Callable[..., Any]:
    """`function` compiled by Paddle; where its first argument is a layer, for that layer.

    Bytecode is followed rather than source, as is Paddle's default: control flow over tensors that it cannot keep stays
    Python, so that gradients are right where those of its ``while`` are not.
    """
    options = {} if strategy is None else {"build_strategy": strategy}
    alone: list[Any] = []
    bound: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def static(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], paddle.nn.Layer):
            owner = args[0]
            if owner not in bound:
                method = types.MethodType(_with_self(function), owner)
                bound[owner] = paddle.jit.to_static(method, full_graph=False, **options)
            return bound[owner](*args[1:], **kwargs)
        if not alone:
            alone.append(paddle.jit.to_static(function, full_graph=False, **options))
        return alone[0](*args, **kwargs)

    return static


def _with_self(function: Any) -> Any:
    """The same function with its first parameter spelled ``self``, without which Paddle knows no instance."""
    if not isinstance(function, types.FunctionType):
        return function
    code = function.__code__
    names = code.co_varnames
    first = next(iter(inspect.signature(function).parameters), "self")
    if first == "self" or names[:1] != (first,) or "self" in names or first in code.co_cellvars:
        return function
    made = types.FunctionType(
        code.replace(co_varnames=("self", *names[1:])), function.__globals__, function.__name__,
        function.__defaults__, function.__closure__,
    )  # fmt: skip
    made.__kwdefaults__, made.__qualname__, made.__module__ = (
        function.__kwdefaults__, function.__qualname__, function.__module__
    )  # fmt: skip
    return made
